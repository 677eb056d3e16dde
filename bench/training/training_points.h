// What the points of the benchmarks of training are called, and one sample of them. Used by step
// and scaling.
#pragma once

#include <string>
#include <vector>

#include "bench/harness/result.h"
#include "bench/training/throughput.h"

namespace pando::bench {

// "mnist-cnn, 2 workers, ps tcp, 1 server, 1 replica", without measurements.
Point TrainingPoint(const TrainPlan& plan, uint32_t workers);
// "ps tcp, 1 server, 1 replica", "allreduce".
std::string ExchangeText(const TrainPlan& plan);

inline constexpr const char* kImagesPerS = "images/s";
inline constexpr const char* kWait = "wait for parameters";
void AddThroughput(const Throughput& throughput, Point* point);

// Runs the plans at once in a folder that goes with it.
Result<Throughput> MeasureOnce(const std::string& program, const std::vector<TrainPlan>& plans,
                               const Window& window, ShutdownSignal& shutdown);

}  // namespace pando::bench
