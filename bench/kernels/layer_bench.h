// `pando bench kernels`: each layer of the zoo's models on one core, beside what the core and its
// memory do at most. GPUs have a program of their own, gpu_bench.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/harness/interleave.h"
#include "bench/kernels/layer_times.h"
#include "cli/shutdown.h"

namespace pando::bench {

struct LayerBenchOptions {
  std::vector<std::string> models{"mnist-cnn", "resnet18-cifar", "vgg16-cifar",
                                  "mobilenet-v2-small"};
  uint32_t batch = 32;
  uint32_t rounds = 5;
};

Result<ResultSet> RunLayerBench(const LayerBenchOptions& options, ShutdownSignal& shutdown,
                                const OnProgress& on_progress);

// ---- parts of it, for tests ---------------------------------------------------------------------

inline constexpr const char* kPeakName = "fused multiply-adds";
inline constexpr const char* kCopyName = "memcpy";
inline constexpr const char* kRate = "rate";  // GFLOP/s, or GB/s of the memory
inline constexpr const char* kForwardTime = "forward";
inline constexpr const char* kBackwardTime = "backward";

struct ModelWork {
  std::string model;
  std::vector<LayerWork> layers;
};
std::string LayerPointName(const std::string& model, const LayerWork& work);

// A table of each model's layers, one of kinds of layers over all of them, and its plot, from the
// points.
void AddLayerSummaries(const std::vector<ModelWork>& models, ResultSet* set);

}  // namespace pando::bench
