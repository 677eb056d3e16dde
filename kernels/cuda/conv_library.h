// ConvLibrary: cuDNN's convolutions, through its graph API, with a plan for each problem, made once
// and kept. The engine is cuDNN's first choice among the deterministic ones (P39), so that machines
// with the same GPU and version agree. Used by conv.cu.
// Threads: one at a time. Owns: cuDNN's handle, plans and a workspace.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/status.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace pando::cuda {

enum class ConvPass : uint8_t { kForward, kDataGradient, kWeightGradient };

// Arrays hold elements: x [samples, height, width, channels], w [out, kernel, kernel, channels /
// groups], y [samples, conv_output].
struct ConvProblem {
  ConvPass pass = ConvPass::kForward;
  Conv2dSpec spec;  // the convolution alone
  uint32_t sample_count = 1;
};

// The pass's result, one of the three, is written: y, x or w.
struct ConvArrays {
  void* x = nullptr;
  void* w = nullptr;
  void* y = nullptr;
};

class ConvLibrary {
 public:
  struct Impl;
  explicit ConvLibrary(std::unique_ptr<Impl> impl);  // of Open
  // kNotFound: cuDNN is missing, or has another version.  `stream` outlives it.
  static Result<std::unique_ptr<ConvLibrary>> Open(const CudaOptions& options, cudaStream_t stream);
  static bool IsThere();  // whether it can be loaded
  ~ConvLibrary();
  ConvLibrary(const ConvLibrary&) = delete;
  ConvLibrary& operator=(const ConvLibrary&) = delete;

  size_t version() const;  // major · 10000 + minor · 100 + patch

  // Makes the problem's plan, unless it exists. This may take long and wait for the GPU. False:
  // cuDNN has no engine for it that may be used.
  bool Prepare(const ConvProblem& problem);
  // Prepares the problem if necessary. False: there is no engine, and nothing is done.
  // REQUIRES: the arrays are aligned to 16 bytes.
  bool Run(const ConvProblem& problem, const ConvArrays& arrays);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando::cuda
