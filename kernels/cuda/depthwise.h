// Our own depthwise convolutions, bound by memory; cuDNN's general engines are slower than memory.
// Called by conv.cu.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/ops.h"

namespace pando::cuda {

// As many groups as input channels and as output channels.
inline bool IsDepthwise(const Conv2dSpec& spec) {
  return spec.groups > 1 && spec.groups == spec.input.channels && spec.groups == spec.out_channels;
}

size_t DepthwiseScratchBytes(CudaDevice& gpu, const Conv2dSpec& spec);
// y: [samples, conv_output] elements.
void DepthwiseForward(CudaDevice& gpu, const Conv2dSpec& spec, uint32_t sample_count, const void* x,
                      const float* weight, void* y, std::span<std::byte> scratch);

struct DepthwiseGradients {
  const void* x;
  const float* weight;
  const void* dy;  // [samples, conv_output]
  void* dx;        // null: not needed
  float* dweight;
};
void DepthwiseBackward(CudaDevice& gpu, const Conv2dSpec& spec, uint32_t sample_count,
                       const DepthwiseGradients& args, std::span<std::byte> scratch);

// sums[c] of elements [pixels, channels], as for a bias's gradient. run_sums: RunSumsBytes() for
// one sum.
void SumElements(CudaDevice& gpu, size_t pixels, uint32_t channels, const void* x, float* sums,
                 std::byte* run_sums);

}  // namespace pando::cuda
