// TrainFlags: one way to train a workload, as the command line of `pando train` says it. Used by
// step, scaling and recovery.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/training/workload.h"

namespace pando::bench {

struct TrainPlan {
  Workload workload;
  std::string strategy;  // ps, allreduce; single: one process, which updates its parameters itself
  uint32_t workers = 1;
  uint32_t servers = 1;           // of ps
  uint32_t replicas = 1;          // of ps
  std::string transport = "tcp";  // of ps
  uint32_t global_batch = 0;      // a micro-batch for each worker
  uint64_t snapshot_every = 0;    // steps; 0: none
  uint64_t seed = 1;
  bool is_verbose = false;  // workers log when they know of a commit

  // That compute or sum; the scheduler has little to do.
  uint32_t process_count() const { return workers + (strategy == "ps" ? servers : 0); }
};

// A run that never ends by itself: as long as batches are full, every step is like every other.
std::vector<std::string> TrainWords(const TrainPlan& plan, const std::string& run_dir);

}  // namespace pando::bench
