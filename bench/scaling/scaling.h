// `pando bench scaling`: images/s by the number of workers, and their efficiency against one
// worker.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/harness/interleave.h"
#include "bench/training/throughput.h"

namespace pando::bench {

// weak: each worker has the same batch, whatever their number. strong: they share the batch that
// one worker has.
inline constexpr const char* kWeak = "weak";
inline constexpr const char* kStrong = "strong";

struct ScalingOptions {
  std::vector<Workload> workloads;
  std::vector<uint32_t> workers{1, 2, 4};  // ascending; the first is what others are compared with
  std::vector<std::string> modes{kWeak, kStrong};
  std::vector<std::string> strategies{"ps", "allreduce"};
  std::string transport = "auto";
  uint32_t servers = 1;
  uint32_t rounds = 3;
  Window window;
  std::string program;
};

Result<ResultSet> RunScaling(const ScalingOptions& options, ShutdownSignal& shutdown,
                             const OnProgress& on_progress);

// ---- parts of it, for tests ---------------------------------------------------------------------

inline constexpr const char* kEfficiency = "efficiency";

struct ScalingPoint {
  Point point;
  TrainPlan plan;
  std::string mode;
  std::string first;  // the point of the fewest workers of the same curve; its own name there
};
std::vector<ScalingPoint> ScalingPoints(const ScalingOptions& options, uint32_t cores);

// Images/s of a worker over those of a worker of the curve's first point, of the same round: 1
// where each more of them brings as much as the first.
void AddEfficiency(const std::vector<ScalingPoint>& asked, std::vector<Point>* points);

void AddScalingSummaries(const std::vector<ScalingPoint>& asked, ResultSet* set);

}  // namespace pando::bench
