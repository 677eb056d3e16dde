// Shared by the tests and cudnn_plans: the zoo's convolutions, the precisions, the GPUs of
// tests/golden/devices, and kernels/cuda/cudnn.cc's planner over the real cuDNN (forward_cudnn.h).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/conv_library.h"
#include "tests/cudnn_real/forward_cudnn.h"

namespace pando::cuda {

// cuDNN plans for described GPUs since 9.8. What the tests expect was measured with 9.19.
inline constexpr size_t kCudnnMin = 91100;

// Why the real cuDNN cannot be used here; empty: it can.
std::string FindObstacle();

struct Gpu {
  std::string name;  // of its file, without the ending
  std::string json;
  size_t memory_bytes = 0;
  bool has_bf16 = false;
};
// The description in a file like those of tests/golden/devices.
Gpu ReadGpu(const std::string& path);

struct RealPrecision {
  const char* name;
  ElementType element = ElementType::kFloat32;
  bool allow_tf32 = false;
};
inline constexpr RealPrecision kPrecisions[] = {{"bf16", ElementType::kBfloat16},
                                                {"fp16", ElementType::kFloat16},
                                                {"tf32", ElementType::kFloat32, true},
                                                {"fp32", ElementType::kFloat32, false}};
inline constexpr const RealPrecision &kBf16 = kPrecisions[0], &kFp32 = kPrecisions[3];

// OpenCuda refuses bf16 on older GPUs than sm_80, such as the T4: cuDNN has few engines for it.
inline bool IsSupported(const Gpu& gpu, const RealPrecision& precision) {
  return precision.element != ElementType::kBfloat16 || gpu.has_bf16;
}

// Among the zoo's, those with all kinds of its convolutions.
inline const std::vector<std::string> kModels = {"mnist-cnn",      "cifar-cnn", "vgg16-bn-cifar",
                                                 "resnet18-cifar", "resnet50",  "mobilenet-v2"};
inline const std::vector<uint32_t> kBatches = {32, 256};

// Those that a training step gives to cuDNN, each once. The input's channels depend on the
// elements.
std::vector<ConvProblem> ZooProblems(std::span<const std::string> models,
                                     std::span<const uint32_t> batches, ElementType element);
// Those of the zoo's other models that kModels do not have, at batch 32.
std::vector<ConvProblem> OtherProblems(ElementType element);

struct Planning {
  std::unique_ptr<ConvPlan> plan;    // null: there is none
  std::vector<RealEngine> proposed;  // by cuDNN, in its order
  std::vector<RealPlan> planned;     // those of them that cudnn.cc tried to plan
};

// cudnn.cc's planner, which also returns what passed between it and cuDNN. One at a time.
class RealPlanner {
 public:
  RealPlanner(const Gpu& gpu, const RealPrecision& precision, size_t workspace_bytes);
  Planning Plan(const ConvProblem& problem);

 private:
  std::unique_ptr<ConvPlanner> planner_;
};

// Whether an engine with these notes must not be used (P35, P39). Does not call cudnn.cc's rule.
bool IsForbidden(const RealEngine& engine, const RealPrecision& precision);

struct FirstEngines {
  std::string text;                    // of each problem, one per line
  size_t run_time_compiled_count = 0;  // cuDNN's proposals that need libnvrtc
};
FirstEngines FindFirstEngines(const Gpu& gpu, const RealPrecision& precision,
                              const std::vector<ConvProblem>& problems);

}  // namespace pando::cuda
