// The CPU's convolution paths, and the rule that chooses one. conv.cc is their only caller.
//
// The small-network path (conv_forward.cc, conv_backward.cc) does all of a Conv2dSpec at once and
// walks only gradients that are not zero. The other paths are plain: they do no bias, dropout2d,
// pool and relu, which conv.cc does before and after them.
#pragma once

#include "kernels/cpu/cpu_ops.h"

namespace pando::cpu {

enum class ConvPath : uint8_t { kSmall, kWinograd, kMatrix, kDepthwise3, kDepthwise, kGrouped };

// Depends on the spec alone, so that every worker computes the same bits (P39).
ConvPath ChooseConvPath(const Conv2dSpec& spec);

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

// Any convolution without groups.
void MatrixForward(const Conv2dSpec& spec, const PlainForward& args, std::span<std::byte> scratch);
void MatrixBackward(const Conv2dSpec& spec, const PlainBackward& args,
                    std::span<std::byte> scratch);
size_t MatrixScratchBytes(const Conv2dSpec& spec);

// As many groups as input channels and as output channels.
void DepthwiseForward(const Conv2dSpec& spec, const PlainForward& args,
                      std::span<std::byte> scratch);
void DepthwiseBackward(const Conv2dSpec& spec, const PlainBackward& args,
                       std::span<std::byte> scratch);
size_t DepthwiseScratchBytes(const Conv2dSpec& spec);

// Without groups, 3x3, stride 1, padding at most 2.
void WinogradForward(const Conv2dSpec& spec, const PlainForward& args,
                     std::span<std::byte> scratch);
void WinogradBackward(const Conv2dSpec& spec, const PlainBackward& args,
                      std::span<std::byte> scratch);
size_t WinogradScratchBytes(const Conv2dSpec& spec, size_t sample_count_max);

// Depthwise, 3x3, padding 1, stride 1 or 2: those for which IsDepthwise3 is true.
bool IsDepthwise3(const Conv2dSpec& spec);
void Depthwise3Forward(const Conv2dSpec& spec, const PlainForward& args,
                       std::span<std::byte> scratch);
void Depthwise3Backward(const Conv2dSpec& spec, const PlainBackward& args,
                        std::span<std::byte> scratch);
size_t Depthwise3ScratchBytes(const Conv2dSpec& spec);

void GroupedForward(const Conv2dSpec& spec, const PlainForward& args);
void GroupedBackward(const Conv2dSpec& spec, const PlainBackward& args);

}  // namespace pando::cpu
