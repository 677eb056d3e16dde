// A convolution on the CPU. This file chooses the path, and adds bias, dropout2d, pool and relu
// around the plain paths.
#include <algorithm>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/conv_paths.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/scratch_carver.h"

namespace pando::cpu {
namespace {

// Returns the floats of [samples, conv_output()]: the scratch for the convolution's output or its
// gradient, if the caller's arrays do not have it.
size_t SumFloats(const Conv2dSpec& spec, size_t sample_count) {
  return sample_count * spec.conv_output().size() + kSlackElements;
}

bool NeedsSums(const Conv2dSpec& spec, const float* channel_scale) {
  return spec.max_pool || spec.relu || channel_scale != nullptr;
}

// Returns null for the small-network path. The choice depends on the spec alone, so that every
// worker computes the same bits (P39).
const PlainPath* ChoosePlainPath(const Conv2dSpec& spec) {
  const SampleShape out = spec.conv_output();
  if (spec.groups > 1) {
    const bool is_depthwise =
        spec.groups == spec.input.channels && spec.out_channels == spec.input.channels;
    if (!is_depthwise) return &kGroupedPath;
    const bool is_depthwise3 = spec.kernel == 3 && spec.padding == 1 && spec.stride <= 2;
    return is_depthwise3 ? &kDepthwise3Path : &kDepthwisePath;
  }
  // Fewer channels would leave vectors empty. Small networks have a pool after each convolution, so
  // most gradients are zero.
  const bool is_first_of_large = spec.out_channels >= 32 && !spec.max_pool;
  if (spec.out_channels < 16 || (spec.input.channels < 16 && !is_first_of_large)) return nullptr;
  // With smaller images most of a tile would be wasted.
  const bool is_winograd = spec.kernel == 3 && spec.stride == 1 && spec.padding <= 2 &&
                           spec.input.channels >= 16 && std::min(out.height, out.width) >= 3;
  return is_winograd ? &kWinogradPath : &kMatrixPath;
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

const float* SampleScale(const float* channel_scale, size_t sample, size_t channels) {
  return channel_scale == nullptr ? nullptr : channel_scale + sample * channels;
}

// Makes y from the convolution's output `sums`; in place if there is no pool.
void FinishForward(const Conv2dSpec& spec, const Conv2dForwardArgs& args, const float* sums) {
  const size_t channels = spec.out_channels, row = spec.conv_output().width * channels;
  const size_t window[4] = {0, channels, row, row + channels};
  ForEachPixel(spec, args.sample_count, [&](size_t s, size_t from, size_t to) {
    const float* scale = SampleScale(args.channel_scale, s, channels);
    for (size_t c = 0; c < channels; c += kLanes) {
      const size_t rest = channels - c;
      Vec largest = Load(sums + from + c);
      if (spec.max_pool) {
        IntVec where{};
        for (int32_t i = 1; i < 4; ++i) {
          const Vec sum = Load(sums + from + window[i] + c);
          const IntVec greater = sum > largest;
          largest = greater ? sum : largest;
          where = greater ? IntVec{} + i : where;
        }
        StorePart(args.argmax + to + c, where, rest);
      }
      Vec y = largest;
      if (args.bias != nullptr) y += LoadPart(args.bias + c, rest);
      if (scale != nullptr) y *= LoadPart(scale + c, rest);
      StorePart(args.y + to + c, spec.relu ? Activate<Activation::kRelu>(y) : y, rest);
    }
  });
}

// Makes the gradient of the convolution's output from y's, back through pool, relu and dropout2d.
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

size_t Conv2dScratchBytes(const Conv2dSpec& spec, uint32_t sample_count_max) {
  const PlainPath* plain = ChoosePlainPath(spec);
  if (plain == nullptr) {
    return std::max(SmallConvForwardScratchBytes(spec), SmallConvBackwardScratchBytes(spec));
  }
  ScratchCarver counter;
  counter.Take<float>(SumFloats(spec, sample_count_max));
  return counter.used_bytes() + plain->scratch_bytes(spec, sample_count_max);
}

void Conv2dForward(const Conv2dSpec& spec, const Conv2dForwardArgs& args,
                   std::span<std::byte> scratch) {
  const PlainPath* plain = ChoosePlainPath(spec);
  if (plain == nullptr) return SmallConvForward(spec, args, scratch);
  ScratchCarver carver(scratch);
  float* const pooled_from = carver.Take<float>(SumFloats(spec, args.sample_count));
  float* const sums = spec.max_pool ? pooled_from : args.y;
  plain->forward(spec, {args.sample_count, args.x, args.weight, sums}, carver.rest());
  if (NeedsSums(spec, args.channel_scale) || args.bias != nullptr) FinishForward(spec, args, sums);
}

void Conv2dBackward(const Conv2dSpec& spec, const Conv2dBackwardArgs& args,
                    std::span<std::byte> scratch) {
  PANDO_CHECK(!args.adds_dx);
  const PlainPath* plain = ChoosePlainPath(spec);
  if (plain == nullptr) return SmallConvBackward(spec, args, scratch);
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
  plain->backward(spec, {args.sample_count, args.x, args.weight, dy, args.dx, args.dweight},
                  carver.rest());
}

}  // namespace pando::cpu
