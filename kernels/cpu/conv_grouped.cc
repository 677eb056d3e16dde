// Convolutions with groups on the CPU: depthwise ones, and all others.
#include <algorithm>

#include "kernels/cpu/conv_paths.h"
#include "kernels/cpu/gemm.h"
#include "kernels/scratch_carver.h"

namespace pando::cpu {
namespace {

// ---- depthwise: vector lanes are channels; each output pixel is a sum over the kernel's taps of
// the pixels under them, in the padded image

struct Scratch {
  const ConvGeometry& g;
  ScratchCarver carver = {};
  size_t taps = g.kernel * g.kernel;
  float* weight = carver.Take<float>(taps * g.out_channels_padded);  // [taps][channels]
  float* dweight = carver.Take<float>(taps * g.out_channels_padded);
  float* image = carver.Take<float>(g.image + kSlackElements);  // one padded image
  float* dimage = carver.Take<float>(g.image + kSlackElements);
};

// Calls f(first float of the output pixel, of the image's pixel, of the tap's weights) for the
// pixels under the kernel, output pixel by output pixel.
template <class F>
void ForEachTap(const Scratch& s, const SampleShape& out, F&& f) {
  const ConvGeometry& g = s.g;
  size_t at = 0;
  for (size_t y = 0; y < out.height; ++y) {
    for (size_t x = 0; x < out.width; ++x, at += g.channels) {
      const size_t corner = y * g.stride * g.row + x * g.stride * g.channels;
      for (size_t tap = 0; tap < s.taps; ++tap) {
        f(at, corner + tap / g.kernel * g.row + tap % g.kernel * g.channels, tap * g.channels);
      }
    }
  }
}

void DepthwiseForward(const Conv2dSpec& spec, const PlainForward& args,
                      std::span<std::byte> scratch) {
  const ConvGeometry g{spec};
  const SampleShape out = spec.conv_output();
  const Scratch s{g, ScratchCarver(scratch)};
  TransposeMatrix(g.channels, s.taps, args.weight, s.weight);
  for (size_t sample = 0; sample < args.sample_count; ++sample) {
    PadImage(g, args.x + sample * g.unpadded_image, s.image);
    float* y = args.y + sample * out.size();
    std::fill_n(y, out.size(), 0.0f);
    ForEachTap(s, out, [&](size_t at, size_t from, size_t tap) {
      const float *pixel = s.image + from, *weight = s.weight + tap;
      for (size_t c = 0; c < g.channels; ++c) y[at + c] += pixel[c] * weight[c];
    });
  }
}

void DepthwiseBackward(const Conv2dSpec& spec, const PlainBackward& args,
                       std::span<std::byte> scratch) {
  const ConvGeometry g{spec};
  const SampleShape out = spec.conv_output();
  const Scratch s{g, ScratchCarver(scratch)};
  TransposeMatrix(g.channels, s.taps, args.weight, s.weight);
  std::fill_n(s.dweight, s.taps * g.channels, 0.0f);
  for (size_t sample = 0; sample < args.sample_count; ++sample) {
    const float* dy = args.dy + sample * out.size();
    PadImage(g, args.x + sample * g.unpadded_image, s.image);
    ForEachTap(s, out, [&](size_t at, size_t from, size_t tap) {
      const float* pixel = s.image + from;
      float* sums = s.dweight + tap;
      for (size_t c = 0; c < g.channels; ++c) sums[c] += dy[at + c] * pixel[c];
    });
    if (args.dx == nullptr) continue;
    std::fill_n(s.dimage, g.image, 0.0f);
    ForEachTap(s, out, [&](size_t at, size_t from, size_t tap) {
      float* pixel = s.dimage + from;
      const float* weight = s.weight + tap;
      for (size_t c = 0; c < g.channels; ++c) pixel[c] += dy[at + c] * weight[c];
    });
    UnpadImage(g, s.dimage, args.dx + sample * g.unpadded_image);
  }
  TransposeMatrix(s.taps, g.channels, s.dweight, args.dweight);
}

// ---- other groups: simple, not fast, because no network of the zoo has them

// Calls f(place in y, in x, in the weights) for each multiplication y += x · weight of one output
// pixel of the samples. Omits multiplications with the padding.
template <class F>
void ForEachProductAt(const Conv2dSpec& spec, size_t pixel, F&& f) {
  const SampleShape in = spec.input, out = spec.conv_output();
  const size_t taps = size_t{spec.kernel} * spec.kernel;
  const size_t group_inputs = in.channels / spec.groups;
  const size_t group_outputs = spec.out_channels / spec.groups;
  const size_t sample = pixel / (out.height * out.width);
  for (size_t tap = 0; tap < taps; ++tap) {
    // y and x wrap around if they are outside of the image.
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

const PlainPath kDepthwisePath{.forward = DepthwiseForward,
                               .backward = DepthwiseBackward,
                               .scratch_bytes = [](const Conv2dSpec& spec, size_t) {
                                 return Scratch{{spec}}.carver.used_bytes();
                               }};

const PlainPath kGroupedPath{.forward = GroupedForward,
                             .backward = GroupedBackward,
                             .scratch_bytes = [](const Conv2dSpec&, size_t) { return size_t{0}; }};

}  // namespace pando::cpu
