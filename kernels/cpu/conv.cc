// A convolution on the CPU: chooses the path, and does bias, dropout2d, pool and relu around the
// paths that do not know them.
#include <algorithm>

#include "kernels/cpu/conv_paths.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/scratch.h"

namespace pando::cpu {
namespace {

// [samples, conv_output()]: the convolution's output or its gradient, where the caller's arrays do
// not hold them.
size_t SumFloats(const Conv2dSpec& spec, size_t sample_count) {
  return sample_count * spec.conv_output().size() + kSlackFloats;
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

// One pixel of the result, or of the gradient: all its channels.
struct FinishedPixel {
  const float* sums;   // upper left of the pool window
  const float* scale;  // of the sample, or null
  float* y;
  int32_t* argmax;
};

float Finish(const Conv2dSpec& spec, const FinishedPixel& p, const float* bias, size_t c,
             float sum) {
  if (bias != nullptr) sum += bias[c];
  if (p.scale != nullptr) sum *= p.scale[c];
  return spec.relu ? std::max(sum, 0.0f) : sum;
}

void FinishPooled(const Conv2dSpec& spec, const FinishedPixel& p, const float* bias) {
  const size_t row = size_t{spec.conv_output().width} * spec.out_channels;
  for (size_t c = 0; c < spec.out_channels; ++c) {
    float largest = p.sums[c];
    int32_t where = 0;
    for (int32_t i = 1; i < 4; ++i) {
      const float sum = p.sums[c + i / 2 * row + i % 2 * spec.out_channels];
      if (sum > largest) largest = sum, where = i;
    }
    p.y[c] = Finish(spec, p, bias, c, largest);
    p.argmax[c] = where;
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

// y from the convolution's output; in place where there is no pool.
void FinishForward(const Conv2dSpec& spec, const Conv2dForwardArgs& args, const float* sums) {
  ForEachPixel(spec, args.sample_count, [&](size_t s, size_t from, size_t to) {
    const float* scale = args.channel_scale;
    const FinishedPixel p{.sums = sums + from,
                          .scale = scale == nullptr ? nullptr : scale + s * spec.out_channels,
                          .y = args.y + to,
                          .argmax = spec.max_pool ? args.argmax + to : nullptr};
    if (spec.max_pool) return FinishPooled(spec, p, args.bias);
    for (size_t c = 0; c < spec.out_channels; ++c) {
      p.y[c] = Finish(spec, p, args.bias, c, p.sums[c]);
    }
  });
}

// The gradient of the convolution's output: pool, relu and dropout2d undone.
void BeginBackward(const Conv2dSpec& spec, const Conv2dBackwardArgs& args, float* gradients) {
  const SampleShape conv = spec.conv_output();
  if (spec.max_pool) std::fill_n(gradients, args.sample_count * conv.size(), 0.0f);
  const size_t row = size_t{conv.width} * conv.channels;
  ForEachPixel(spec, args.sample_count, [&](size_t s, size_t to, size_t from) {
    for (size_t c = 0; c < spec.out_channels; ++c) {
      float gradient = args.dy[from + c];
      if (spec.relu && !(args.y[from + c] > 0.0f)) gradient = 0.0f;
      if (args.channel_scale != nullptr) gradient *= args.channel_scale[s * spec.out_channels + c];
      const int32_t where = spec.max_pool ? args.argmax[from + c] : 0;
      gradients[to + c + where / 2 * row + where % 2 * conv.channels] = gradient;
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
  // Fewer channels leave vectors empty, and small networks have a pool behind each convolution:
  // most gradients are zero.
  const bool is_first_of_large = spec.out_channels >= 32 && !spec.max_pool;
  if (spec.out_channels < 16 || (spec.input.channels < 16 && !is_first_of_large)) {
    return ConvPath::kSmall;
  }
  // Of smaller images most of a tile is wasted.
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
