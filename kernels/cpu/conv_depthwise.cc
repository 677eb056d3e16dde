// Depthwise convolution on the CPU. Vector lanes are channels; each output pixel is a sum over the
// kernel's taps of the pixels under them, in the padded image.
#include <algorithm>

#include "kernels/cpu/conv_geometry.h"
#include "kernels/cpu/conv_paths.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/transpose.h"

namespace pando::cpu {
namespace {

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

}  // namespace

const PlainPath kDepthwisePath{.forward = DepthwiseForward,
                               .backward = DepthwiseBackward,
                               .scratch_bytes = [](const Conv2dSpec& spec, size_t) {
                                 return Scratch{{spec}}.carver.used_bytes();
                               }};

}  // namespace pando::cpu
