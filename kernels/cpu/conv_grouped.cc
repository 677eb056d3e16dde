// Convolution with groups that are neither one nor depthwise, by definition. No network of the zoo
// has one, so this is simple, not fast.
#include <algorithm>

#include "kernels/cpu/conv_paths.h"

namespace pando::cpu {
namespace {

// Calls f(place in y, in x, in the weights) for each multiplication y += x · weight of an output
// pixel of the samples. Omits those in the padding.
template <class F>
void ForEachProductAt(const Conv2dSpec& spec, size_t pixel, F&& f) {
  const SampleShape in = spec.input, out = spec.conv_output();
  const size_t taps = size_t{spec.kernel} * spec.kernel;
  const size_t group_inputs = in.channels / spec.groups;
  const size_t group_outputs = spec.out_channels / spec.groups;
  const size_t sample = pixel / (out.height * out.width);
  for (size_t tap = 0; tap < taps; ++tap) {
    // They wrap outside.
    const size_t y =
        pixel / out.width % out.height * spec.stride + tap / spec.kernel - spec.padding;
    const size_t x = pixel % out.width * spec.stride + tap % spec.kernel - spec.padding;
    if (y >= in.height || x >= in.width) continue;
    const size_t in_pixel = sample * in.size() + (y * in.width + x) * in.channels;
    for (size_t o = 0; o < spec.out_channels; ++o) {
      for (size_t c = 0; c < group_inputs; ++c) {
        f(pixel * spec.out_channels + o, in_pixel + o / group_outputs * group_inputs + c,
          (o * group_inputs + c) * taps + tap);
      }
    }
  }
}

template <class F>
void ForEachProduct(const Conv2dSpec& spec, size_t sample_count, F&& f) {
  const SampleShape out = spec.conv_output();
  const size_t pixels = sample_count * out.height * out.width;
  for (size_t pixel = 0; pixel < pixels; ++pixel) ForEachProductAt(spec, pixel, f);
}

void GroupedForward(const Conv2dSpec& spec, const PlainForward& args, std::span<std::byte>) {
  std::fill_n(args.y, args.sample_count * spec.conv_output().size(), 0.0f);
  ForEachProduct(spec, args.sample_count, [&](size_t y, size_t x, size_t weight) {
    args.y[y] += args.x[x] * args.weight[weight];
  });
}

void GroupedBackward(const Conv2dSpec& spec, const PlainBackward& args, std::span<std::byte>) {
  std::fill_n(args.dweight, spec.weight_size(), 0.0f);
  ForEachProduct(spec, args.sample_count, [&](size_t y, size_t x, size_t weight) {
    args.dweight[weight] += args.x[x] * args.dy[y];
  });
  if (args.dx == nullptr) return;
  std::fill_n(args.dx, args.sample_count * spec.input.size(), 0.0f);
  ForEachProduct(spec, args.sample_count, [&](size_t y, size_t x, size_t weight) {
    args.dx[x] += args.weight[weight] * args.dy[y];
  });
}

}  // namespace

const PlainPath kGroupedPath{.forward = GroupedForward,
                             .backward = GroupedBackward,
                             .scratch_bytes = [](const Conv2dSpec&, size_t) { return size_t{0}; }};

}  // namespace pando::cpu
