// MeasureThroughput: images/s of workers that train at the same time. Used by step and scaling.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/training/training_runs.h"

namespace pando::bench {

struct Window {
  double seconds = 10.0;       // at least
  uint64_t warm_up_steps = 5;  // of each run, left out; counted when all have begun
  uint64_t steps_min = 5;      // of each run
};

struct Throughput {
  double images_per_s = 0.0;     // of all runs
  double exposed_sync_ms = 0.0;  // of a step: what the runs themselves say, their mean
};

// Starts the runs at once, lets each warm up, and takes what their metrics say of the same stretch
// of time. Then all are ended.
Result<Throughput> MeasureThroughput(TrainingRuns& runs, const std::vector<TrainPlan>& plans,
                                     const Window& window);

}  // namespace pando::bench
