// Depthwise convolutions of our own, every channel alone: bound by memory, where cuDNN's general
// engines are not. Called by conv.cu.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/ops.h"

namespace pando::cuda {

// As many groups as input and output channels.
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
  void* dx;        // null: not wanted
  float* dweight;
};
void DepthwiseBackward(CudaDevice& gpu, const Conv2dSpec& spec, uint32_t sample_count,
                       const DepthwiseGradients& args, std::span<std::byte> scratch);

// sums[c] of elements [pixels, channels], as a bias's gradient. run_sums: RunSumsBytes() of one
// sum.
void SumElements(CudaDevice& gpu, size_t pixels, uint32_t channels, const void* x, float* sums,
                 std::byte* run_sums);

}  // namespace pando::cuda
