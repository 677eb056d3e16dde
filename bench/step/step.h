// `pando bench step`: images/s of a training step, and how much of the step its workers lose to
// the exchange of gradients and parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/harness/interleave.h"
#include "bench/training/throughput.h"
#include "bench/training/workload.h"

namespace pando::bench {

struct StepOptions {
  std::vector<Workload> workloads;
  std::vector<uint32_t> workers{2};
  std::vector<std::string> strategies{"ps", "allreduce"};
  std::vector<std::string> transports{"auto", "tcp"};
  std::vector<uint32_t> replicas{1, 2};
  uint32_t servers = 1;  // as many as replicas, at least
  uint32_t rounds = 3;
  Window window;
  std::string program;  // pando
};

// Each workload × number of workers: with the exchange replaced by a local update, with servers
// over each transport and number of replicas, and by allreduce.
Result<ResultSet> RunStep(const StepOptions& options, ShutdownSignal& shutdown,
                          const OnProgress& on_progress);

// ---- parts of it, for tests ---------------------------------------------------------------------

inline constexpr const char* kExposed = "exposed synchronisation";

struct StepPoint {
  Point point;
  std::vector<TrainPlan> plans;  // of the runs that are at work at once
  std::string baseline;          // the point whose workers exchange nothing; empty: this is one
};
std::vector<StepPoint> StepPoints(const StepOptions& options, uint32_t cores);

// 1 - images/s over the baseline's of the same round, in percent, for each point with a baseline.
void AddExposed(const std::vector<StepPoint>& asked, std::vector<Point>* points);

void AddStepSummaries(const StepOptions& options, const std::vector<StepPoint>& asked,
                      ResultSet* set);

}  // namespace pando::bench
