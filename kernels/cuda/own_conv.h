// Our own convolutions, which conv.cu calls. Depthwise ones are bound by memory, and cuDNN's
// general engines are slower than memory. Direct ones, for any shape for which cuDNN has no engine,
// follow the definition and are slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/conv_library.h"
#include "kernels/ops.h"

namespace pando::cuda {

// Returns whether there are as many groups as input channels and as output channels.
inline bool IsDepthwise(const Conv2dSpec& spec) {
  return spec.groups > 1 && spec.groups == spec.input.channels && spec.groups == spec.out_channels;
}

size_t DepthwiseScratchBytes(CudaDevice& gpu, const Conv2dSpec& spec);
// Computes the convolution alone. y: [samples, conv_output] elements; dy is its gradient.
void DepthwiseForward(CudaDevice& gpu, const Conv2dSpec& spec, const Conv2dForwardArgs& args,
                      void* y, std::span<std::byte> scratch);
void DepthwiseBackward(CudaDevice& gpu, const Conv2dSpec& spec, const Conv2dBackwardArgs& args,
                       const void* dy, std::span<std::byte> scratch);

void DirectConvolve(CudaDevice& gpu, const ConvProblem& problem, const ConvArrays& arrays);

// A convolution for kernels, which cannot call Conv2dSpec's functions.
struct ConvGeometry {
  explicit ConvGeometry(const Conv2dSpec& s)
      : spec(s), in(s.input), out(s.conv_output()), result(s.output()) {}

  Conv2dSpec spec;
  SampleShape in, out;
  SampleShape result;  // the result of the operations after the convolution
};

// Returns, along one axis, the place that a tap reads for a place of the result; past the axis if
// there is none. The result is y, or in backward x's gradient, which reads from y's.
template <bool kBackward>
__device__ uint32_t FindSource(const ConvGeometry& g, uint32_t place, uint32_t tap) {
  if constexpr (kBackward) {
    const uint32_t from = place + g.spec.padding - tap;  // wraps if outside; the next one too
    return from % g.spec.stride == 0 ? from / g.spec.stride : UINT32_MAX;
  } else {
    return place * g.spec.stride + tap - g.spec.padding;
  }
}

}  // namespace pando::cuda
