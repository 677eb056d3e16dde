// The CPU's convolution paths. Only conv.cc calls them, and it chooses one.
//
// The small-network path (conv_forward.cc, conv_backward.cc) does all of a Conv2dSpec at once and
// walks only gradients that are not zero. The other paths are plain: they leave out bias,
// dropout2d, pool and relu, which conv.cc computes before and after them.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd.h"
#include "kernels/ops.h"

namespace pando::cpu {

// ConvGeometry: the lengths and strides that the CPU's convolution kernels share.
//
// Images are [height, width, channels], so the pixels under one row of the kernel are one run of
// kernel · channels floats. The kernels work on such runs. With padding they work on a copy of the
// image with a border of zeros, so that no run has an edge case.
struct ConvGeometry {
  const Conv2dSpec& spec;
  SampleShape in = spec.input, out = spec.output();  // the output: after the pool
  size_t channels = in.channels, height = in.height, width = in.width;
  size_t kernel = spec.kernel, stride = spec.stride, padding = spec.padding;
  size_t pool = spec.max_pool ? 2 : 1;
  size_t run = kernel * channels;                 // floats under one row of the kernel
  size_t row = (width + 2 * padding) * channels;  // floats of a row of the padded image
  size_t image = (height + 2 * padding) * row;    // floats of the padded image
  size_t unpadded_image = in.size();
  size_t out_channels = spec.out_channels, out_channels_padded = RoundUpToLanes(out_channels);
  size_t out_height = out.height, out_width = out.width;
  size_t cells = out_height * out_width;  // output pixels

  // Returns the first float under the kernel for output pixel (y, x). With a pool, the kernel is at
  // the upper left of the pixel's pool window.
  size_t CellOffset(size_t y, size_t x) const {
    return y * pool * stride * row + x * pool * stride * channels;
  }
};

// Copies one image into the middle of a padded image, and writes zeros to its whole border.
inline void PadImage(const ConvGeometry& g, const float* x, float* padded) {
  const size_t border = g.padding * g.channels;
  const size_t inner = g.width * g.channels;
  std::fill_n(padded, g.padding * g.row, 0.0f);
  std::fill_n(padded + g.image - g.padding * g.row, g.padding * g.row, 0.0f);
  for (size_t y = 0; y < g.height; ++y) {
    float* to = padded + (y + g.padding) * g.row;
    std::fill_n(to, border, 0.0f);
    std::copy_n(x + y * inner, inner, to + border);
    std::fill_n(to + border + inner, border, 0.0f);
  }
}

// Copies the middle of a padded image to an image without a border.
inline void UnpadImage(const ConvGeometry& g, const float* padded, float* x) {
  const size_t inner = g.width * g.channels;
  for (size_t y = 0; y < g.height; ++y) {
    std::copy_n(padded + (y + g.padding) * g.row + g.padding * g.channels, inner, x + y * inner);
  }
}

void SmallConvForward(const Conv2dSpec& spec, const Conv2dForwardArgs& args,
                      std::span<std::byte> scratch);
void SmallConvBackward(const Conv2dSpec& spec, const Conv2dBackwardArgs& args,
                       std::span<std::byte> scratch);
size_t SmallConvForwardScratchBytes(const Conv2dSpec& spec);
size_t SmallConvBackwardScratchBytes(const Conv2dSpec& spec);

// Arrays as in ops.h, but y and dy are the convolution's alone: [samples, conv_output()].
struct PlainForward {
  size_t sample_count = 0;
  const float* x = nullptr;
  const float* weight = nullptr;
  float* y = nullptr;
};
struct PlainBackward {
  size_t sample_count = 0;
  const float* x = nullptr;
  const float* weight = nullptr;
  const float* dy = nullptr;
  float* dx = nullptr;  // null: not needed
  float* dweight = nullptr;
};

struct PlainPath {
  void (*forward)(const Conv2dSpec& spec, const PlainForward& args, std::span<std::byte> scratch);
  void (*backward)(const Conv2dSpec& spec, const PlainBackward& args, std::span<std::byte> scratch);
  size_t (*scratch_bytes)(const Conv2dSpec& spec, size_t sample_count_max);
};
extern const PlainPath kMatrixPath;      // any convolution without groups
extern const PlainPath kWinogradPath;    // without groups: 3x3, stride 1, padding at most 2
extern const PlainPath kDepthwisePath;   // as many groups as input and as output channels
extern const PlainPath kDepthwise3Path;  // depthwise, 3x3, padding 1, stride 1 or 2
extern const PlainPath kGroupedPath;     // any number of groups

}  // namespace pando::cpu
