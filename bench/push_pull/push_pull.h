// `pando bench push-pull`: the data path between worker and server beside the machine's ceilings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/harness/interleave.h"
#include "bench/push_pull/trial.h"

namespace pando::bench {

struct PushPullOptions {
  std::vector<uint64_t> bytes{4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};
  std::vector<uint32_t> servers{1, 2};
  std::vector<uint32_t> workers{1, 2};
  std::vector<std::string> transports{"tcp", "ipc", "shm"};
  std::vector<std::string> optimizers{"sum", "sgd-momentum"};
  uint32_t in_flight = 8;  // shards of each server
  uint32_t rounds = 5;
  TrialTimes times;
  bool has_barrier = false;
  bool copies = false;
};

// Each shard size × transport × servers × workers × optimizer, and the ceilings of the same sizes.
Result<ResultSet> RunPushPull(const PushPullOptions& options, ShutdownSignal& shutdown,
                              const OnProgress& on_progress);

// The tables and plots of what was measured: Pando's share of raw ZeroMQ. Reads the points alone.
void AddSummaries(const PushPullOptions& options, ResultSet* set);

}  // namespace pando::bench
