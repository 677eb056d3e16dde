// A convolution on the CPU: chooses the path, and adds bias, dropout2d, pool and relu around the
// plain paths.
#include <algorithm>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/conv_paths.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/scratch.h"

namespace pando::cpu {
namespace {

// [samples, conv_output()]: the convolution's output or its gradient, if the caller's arrays do not
// have it.
size_t SumFloats(const Conv2dSpec& spec, size_t sample_count) {
  return sample_count * spec.conv_output().size() + kSlackElements;
}

bool NeedsSums(const Conv2dSpec& spec, const float* channel_scale) {
  return spec.max_pool || spec.relu || channel_scale != nullptr;
}

size_t PlainScratchBytes(const Conv2dSpec& spec, size_t sample_count_max) {
  switch (ChooseConvPath(spec)) {
    case ConvPath::kWinograd:
      return WinogradScratchBytes(spec, sample_count_max);
    case ConvPath::kMatrix:
      return MatrixScratchBytes(spec);
    case ConvPath::kDepthwise3:
      return Depthwise3ScratchBytes(spec);
    case ConvPath::kDepthwise:
      return DepthwiseScratchBytes(spec);
    case ConvPath::kGrouped:
    case ConvPath::kSmall:
      return 0;
  }
  PANDO_CHECK(false);
}

void ForwardPlain(const Conv2dSpec& spec, const PlainForward& args, std::span<std::byte> scratch) {
  switch (ChooseConvPath(spec)) {
    case ConvPath::kWinograd:
      return WinogradForward(spec, args, scratch);
    case ConvPath::kMatrix:
      return MatrixForward(spec, args, scratch);
    case ConvPath::kDepthwise3:
      return Depthwise3Forward(spec, args, scratch);
    case ConvPath::kDepthwise:
      return DepthwiseForward(spec, args, scratch);
    case ConvPath::kGrouped:
      return GroupedForward(spec, args);
    case ConvPath::kSmall:
      PANDO_CHECK(false);
  }
}

void BackwardPlain(const Conv2dSpec& spec, const PlainBackward& args,
                   std::span<std::byte> scratch) {
  switch (ChooseConvPath(spec)) {
    case ConvPath::kWinograd:
      return WinogradBackward(spec, args, scratch);
    case ConvPath::kMatrix:
      return MatrixBackward(spec, args, scratch);
    case ConvPath::kDepthwise3:
      return Depthwise3Backward(spec, args, scratch);
    case ConvPath::kDepthwise:
      return DepthwiseBackward(spec, args, scratch);
    case ConvPath::kGrouped:
      return GroupedBackward(spec, args);
    case ConvPath::kSmall:
      PANDO_CHECK(false);
  }
}

// Calls f(sample, first float of the convolution's output, first float of the result) for each
// pixel of the result.
template <class F>
void ForEachPixel(const Conv2dSpec& spec, size_t sample_count, F&& f) {
  const SampleShape conv = spec.conv_output(), out = spec.output();
  const size_t pool = spec.max_pool ? 2 : 1;
  size_t to = 0;
  for (size_t s = 0; s < sample_count; ++s) {
    for (size_t y = 0; y < out.height; ++y) {
      for (size_t x = 0; x < out.width; ++x, to += out.channels) {
        f(s, ((s * conv.height + y * pool) * conv.width + x * pool) * out.channels, to);
      }
    }
  }
}

// Operations on a sum before it is stored; null ones are omitted.
struct Finish {
  const float* bias;
  const float* scale;  // of the sample
  bool relu;

  Vec operator()(Vec sum, size_t c, size_t rest) const {
    if (bias != nullptr) sum += LoadPart(bias + c, rest);
    if (scale != nullptr) sum *= LoadPart(scale + c, rest);
    return relu ? Activate<Activation::kRelu>(sum) : sum;
  }
};

const float* SampleScale(const float* channel_scale, size_t sample, size_t channels) {
  return channel_scale == nullptr ? nullptr : channel_scale + sample * channels;
}

// y from the convolution's output; in place where there is no pool.
void FinishForward(const Conv2dSpec& spec, const Conv2dForwardArgs& args, const float* sums) {
  const size_t channels = spec.out_channels, row = spec.conv_output().width * channels;
  const size_t window[4] = {0, channels, row, row + channels};
  ForEachPixel(spec, args.sample_count, [&](size_t s, size_t from, size_t to) {
    const Finish finish{args.bias, SampleScale(args.channel_scale, s, channels), spec.relu};
    for (size_t c = 0; c < channels; c += kLanes) {
      Vec largest = Load(sums + from + c);
      if (spec.max_pool) {
        IntVec where{};
        for (int32_t i = 1; i < 4; ++i) {
          const Vec sum = Load(sums + from + window[i] + c);
          const IntVec greater = sum > largest;
          largest = greater ? sum : largest;
          where = greater ? IntVec{} + i : where;
        }
        StorePart(args.argmax + to + c, where, channels - c);
      }
      StorePart(args.y + to + c, finish(largest, c, channels - c), channels - c);
    }
  });
}

// The gradient of the convolution's output, through pool, relu and dropout2d.
void BeginBackward(const Conv2dSpec& spec, const Conv2dBackwardArgs& args, float* gradients) {
  const SampleShape conv = spec.conv_output();
  const size_t channels = spec.out_channels, row = conv.width * channels;
  const size_t window[4] = {0, channels, row, row + channels};
  const bool leaves_out = spec.max_pool && (conv.height % 2 != 0 || conv.width % 2 != 0);
  if (leaves_out) std::fill_n(gradients, args.sample_count * conv.size(), 0.0f);
  ForEachPixel(spec, args.sample_count, [&](size_t s, size_t to, size_t from) {
    const float* scale = SampleScale(args.channel_scale, s, channels);
    for (size_t c = 0; c < channels; c += kLanes) {
      Vec gradient = Load(args.dy + from + c);
      if (spec.relu) gradient = Pass<Activation::kRelu>(args.y, from + c, gradient);
      if (scale != nullptr) gradient *= LoadPart(scale + c, channels - c);
      if (!spec.max_pool) {
        StorePart(gradients + to + c, gradient, channels - c);
        continue;
      }
      const IntVec where = Load(args.argmax + from + c);
      for (int32_t i = 0; i < 4; ++i) {
        StorePart(gradients + to + window[i] + c, where == i ? gradient : Vec{}, channels - c);
      }
    }
  });
}

void SumPixels(size_t pixels, size_t channels, const float* gradients, float* dbias) {
  std::fill_n(dbias, channels, 0.0f);
  for (size_t p = 0; p < pixels; ++p, gradients += channels) {
    for (size_t c = 0; c < channels; ++c) dbias[c] += gradients[c];
  }
}

}  // namespace

ConvPath ChooseConvPath(const Conv2dSpec& spec) {
  if (spec.groups > 1) {
    const bool is_depthwise =
        spec.groups == spec.input.channels && spec.out_channels == spec.input.channels;
    if (!is_depthwise) return ConvPath::kGrouped;
    return IsDepthwise3(spec) ? ConvPath::kDepthwise3 : ConvPath::kDepthwise;
  }
  // Fewer channels leave vectors empty. Small networks have a pool after each convolution, so most
  // gradients are zero.
  const bool is_first_of_large = spec.out_channels >= 32 && !spec.max_pool;
  if (spec.out_channels < 16 || (spec.input.channels < 16 && !is_first_of_large)) {
    return ConvPath::kSmall;
  }
  // With smaller images most of a tile is wasted.
  const SampleShape out = spec.conv_output();
  const bool is_winograd = spec.kernel == 3 && spec.stride == 1 && spec.padding <= 2 &&
                           spec.input.channels >= 16 && std::min(out.height, out.width) >= 3;
  return is_winograd ? ConvPath::kWinograd : ConvPath::kMatrix;
}

size_t Conv2dScratchBytes(const Conv2dSpec& spec, uint32_t sample_count_max) {
  if (ChooseConvPath(spec) == ConvPath::kSmall) {
    return std::max(SmallConvForwardScratchBytes(spec), SmallConvBackwardScratchBytes(spec));
  }
  ScratchCarver counter;
  counter.Take<float>(SumFloats(spec, sample_count_max));
  return counter.used_bytes() + PlainScratchBytes(spec, sample_count_max);
}

void Conv2dForward(const Conv2dSpec& spec, const Conv2dForwardArgs& args,
                   std::span<std::byte> scratch) {
  if (ChooseConvPath(spec) == ConvPath::kSmall) return SmallConvForward(spec, args, scratch);
  ScratchCarver carver(scratch);
  float* const pooled_from = carver.Take<float>(SumFloats(spec, args.sample_count));
  float* const sums = spec.max_pool ? pooled_from : args.y;
  ForwardPlain(spec,
               {.sample_count = args.sample_count, .x = args.x, .weight = args.weight, .y = sums},
               carver.rest());
  if (NeedsSums(spec, args.channel_scale) || args.bias != nullptr) FinishForward(spec, args, sums);
}

void Conv2dBackward(const Conv2dSpec& spec, const Conv2dBackwardArgs& args,
                    std::span<std::byte> scratch) {
  if (ChooseConvPath(spec) == ConvPath::kSmall) return SmallConvBackward(spec, args, scratch);
  ScratchCarver carver(scratch);
  float* const gradients = carver.Take<float>(SumFloats(spec, args.sample_count));
  const float* dy = args.dy;
  if (NeedsSums(spec, args.channel_scale)) {
    BeginBackward(spec, args, gradients);
    dy = gradients;
  }
  if (args.dbias != nullptr) {
    const SampleShape conv = spec.conv_output();
    SumPixels(args.sample_count * conv.height * conv.width, conv.channels, dy, args.dbias);
  }
  BackwardPlain(spec,
                {.sample_count = args.sample_count,
                 .x = args.x,
                 .weight = args.weight,
                 .dy = dy,
                 .dx = args.dx,
                 .dweight = args.dweight},
                carver.rest());
}

}  // namespace pando::cpu
