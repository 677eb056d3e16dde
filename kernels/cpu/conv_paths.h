// The CPU's convolution paths. conv.cc is their only caller, and chooses one.
//
// The small-network path (conv_forward.cc, conv_backward.cc) does all of a Conv2dSpec at once and
// walks only gradients that are not zero. The other paths are plain: they do no bias, dropout2d,
// pool and relu, which conv.cc does before and after them.
#pragma once

#include "kernels/cpu/cpu_ops.h"

namespace pando::cpu {

void SmallConvForward(const Conv2dSpec& spec, const Conv2dForwardArgs& args,
                      std::span<std::byte> scratch);
void SmallConvBackward(const Conv2dSpec& spec, const Conv2dBackwardArgs& args,
                       std::span<std::byte> scratch);
size_t SmallConvForwardScratchBytes(const Conv2dSpec& spec);
size_t SmallConvBackwardScratchBytes(const Conv2dSpec& spec);

// Arrays as in ops.h, but y and dy are [samples, conv_output()]: those of the convolution alone.
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
extern const PlainPath kWinogradPath;    // without groups, 3x3, stride 1, padding at most 2
extern const PlainPath kDepthwisePath;   // as many groups as input and as output channels
extern const PlainPath kDepthwise3Path;  // depthwise, 3x3, padding 1, stride 1 or 2
extern const PlainPath kGroupedPath;     // any number of groups

}  // namespace pando::cpu
