// ConvLibrary runs cuDNN's convolutions. It makes the plan for each problem once and keeps it.
// conv.cu calls it. Threads: one at a time. The planner owns cuDNN's handle and a workspace.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/result.h"
#include "kernels/opened_gpu.h"
#include "kernels/ops.h"

namespace pando::cuda {

enum class ConvPass : uint8_t { kForward, kDataGradient, kWeightGradient };

// Arrays have elements: x [samples, height, width, channels], w [out, kernel, kernel, channels /
// groups], y [samples, conv_output].
struct ConvProblem {
  ConvPass pass = ConvPass::kForward;
  Conv2dSpec spec;  // the convolution alone
  uint32_t sample_count = 1;
  bool adds = false;  // a data gradient is added to x
};

// The pass writes its result, one of the three: y, x or w.
struct ConvArrays {
  void* x = nullptr;
  void* w = nullptr;
  void* y = nullptr;
};

// "forward of 32 x 28 x 28 x 1 to 10 channels, kernel 5, stride 1, padding 2, groups 1". Problems
// with equal texts are equal.
std::string ProblemText(const ConvProblem& problem);

// One of cuDNN's engines, as the log names it. The engine decides the bits.
struct ConvEngine {
  int64_t index = -1;                // cuDNN's index for this kind of convolution; -1: not known
  std::map<int64_t, int64_t> knobs;  // its settings: values by cuDNN's knob types
  uint64_t workspace_bytes = 0;
  bool operator==(const ConvEngine&) const = default;
};

// A convolution that is ready to run on the planner's stream.
class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  virtual const ConvEngine& engine() const = 0;
  // REQUIRES: the arrays are aligned to 16 bytes, and belong to the plan's problem.
  virtual void Run(const ConvArrays& arrays) = 0;
};

// Makes the plans of a convolution library, cuDNN, and outlives them. ConvLibrary uses it.
class ConvPlanner {
 public:
  virtual ~ConvPlanner() = default;
  // major · 10000 + minor · 100 + patch
  virtual size_t version() const = 0;
  // Makes a plan with the first engine that the library proposes, that may be used (P39) and that
  // can be planned. Null: the library has none.
  virtual std::unique_ptr<ConvPlan> Plan(const ConvProblem& problem) = 0;
};

struct ConvSetting {
  size_t workspace_bytes = 0;  // allocated; plans that need more are not used
  size_t cublas_major = 0;     // of the cuBLASLt that this process loads; cuDNN calls it too
};
// kNotFound: cuDNN or a part of it is missing, has another version, or is built for another CUDA.
// `stream` outlives the planner.
Result<std::unique_ptr<ConvPlanner>> OpenConvPlanner(const CudaOptions& options,
                                                     const ConvSetting& setting,
                                                     cudaStream_t stream);
bool HasConvPlanner();  // whether cuDNN can be loaded

// Returns the workspace of a GPU's convolutions: an eighth of its memory, rounded down to a power
// of two, at least 256 MiB and at most 1 GiB. At batch 256 cuDNN's fastest engines for ResNet-50
// need up to that much. The size follows from the kind of GPU (P39), not from the free memory.
size_t ConvWorkspaceBytes(size_t total_bytes);

class ConvLibrary {
 public:
  ConvLibrary(std::unique_ptr<ConvPlanner> planner, OnEngineNote on_note)
      : planner_(std::move(planner)), on_note_(std::move(on_note)) {}
  // Opens the planner with OpenConvPlanner, and returns its errors.
  static Result<std::unique_ptr<ConvLibrary>> Open(const CudaOptions& options,
                                                   const ConvSetting& setting, cudaStream_t stream);

  size_t version() const { return planner_->version(); }  // as the planner's

  // Makes the problem's plan unless it exists; this may take long and wait for the GPU. Returns
  // false, and does nothing, if the library has no engine for it that may be used.
  // REQUIRES: the arrays are aligned to 16 bytes.
  bool Run(const ConvProblem& problem, const ConvArrays& arrays);

 private:
  ConvPlan* FindPlan(const ConvProblem& problem);
  void Note(const ConvProblem& problem, const ConvPlan* plan) const;

  const std::unique_ptr<ConvPlanner> planner_;
  const OnEngineNote on_note_;
  using Key = std::array<uint32_t, 11>;  // identifies a problem
  static Key KeyFor(const ConvProblem& problem);
  std::map<Key, std::unique_ptr<ConvPlan>> plans_;  // null: no engine
};

}  // namespace pando::cuda
