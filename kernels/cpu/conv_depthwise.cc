// Depthwise convolution on the CPU. Vector lanes are channels; each output pixel is a sum over the
// kernel's taps of the pixels under them, in the padded image.
#include <algorithm>

#include "kernels/cpu/conv_geometry.h"
#include "kernels/cpu/conv_paths.h"
#include "kernels/cpu/scratch.h"

namespace pando::cpu {
namespace {

struct DepthwiseScratch {
  float* weight;   // [taps][channels_padded]
  float* dweight;  // the same
  float* image;    // one padded image
  float* dimage;   // the same
};

DepthwiseScratch Carve(const ConvGeometry& g, ScratchCarver& carver) {
  const size_t taps = g.kernel * g.kernel;
  DepthwiseScratch s{};
  s.weight = carver.Take<float>(taps * g.out_channels_padded);
  s.dweight = carver.Take<float>(taps * g.out_channels_padded);
  s.image = carver.Take<float>(g.image + kSlackElements);
  s.dimage = carver.Take<float>(g.image + kSlackElements);
  return s;
}

void PackWeights(const ConvGeometry& g, const float* weight, float* packed) {
  const size_t taps = g.kernel * g.kernel;
  for (size_t tap = 0; tap < taps; ++tap, packed += g.out_channels_padded) {
    for (size_t c = 0; c < g.channels; ++c) packed[c] = weight[c * taps + tap];
    std::fill(packed + g.channels, packed + g.out_channels_padded, 0.0f);
  }
}

// Calls f(tap, floats from the pixel under the kernel's first tap to the one under this).
template <class F>
void ForEachTap(const ConvGeometry& g, F&& f) {
  for (size_t tap = 0; tap < g.kernel * g.kernel; ++tap) {
    f(tap, tap / g.kernel * g.row + tap % g.kernel * g.channels);
  }
}

// Calls f(output pixel's first float, floats to its kernel's corner in the padded image).
template <class F>
void ForEachPixel(const ConvGeometry& g, const SampleShape& out, F&& f) {
  size_t at = 0;
  for (size_t y = 0; y < out.height; ++y) {
    for (size_t x = 0; x < out.width; ++x, at += g.channels) {
      f(at, y * g.stride * g.row + x * g.stride * g.channels);
    }
  }
}

void AddGradients(const ConvGeometry& g, const SampleShape& out, const DepthwiseScratch& s,
                  const float* dy) {
  ForEachPixel(g, out, [&](size_t at, size_t corner) {
    ForEachTap(g, [&](size_t tap, size_t offset) {
      const float* pixel = s.image + corner + offset;
      float* sums = s.dweight + tap * g.out_channels_padded;
      for (size_t c = 0; c < g.channels; ++c) sums[c] += dy[at + c] * pixel[c];
    });
  });
}

void AddDataGradients(const ConvGeometry& g, const SampleShape& out, const DepthwiseScratch& s,
                      const float* dy) {
  ForEachPixel(g, out, [&](size_t at, size_t corner) {
    ForEachTap(g, [&](size_t tap, size_t offset) {
      float* pixel = s.dimage + corner + offset;
      const float* weight = s.weight + tap * g.out_channels_padded;
      for (size_t c = 0; c < g.channels; ++c) pixel[c] += dy[at + c] * weight[c];
    });
  });
}

}  // namespace

size_t DepthwiseScratchBytes(const Conv2dSpec& spec) {
  ScratchCarver counter;
  Carve(ConvGeometry(spec), counter);
  return counter.used_bytes();
}

void DepthwiseForward(const Conv2dSpec& spec, const PlainForward& args,
                      std::span<std::byte> scratch) {
  const ConvGeometry g(spec);
  const SampleShape out = spec.conv_output();
  ScratchCarver carver(scratch);
  const DepthwiseScratch s = Carve(g, carver);
  PackWeights(g, args.weight, s.weight);
  for (size_t sample = 0; sample < args.sample_count; ++sample) {
    PadImage(g, args.x + sample * g.unpadded_image, s.image);
    float* y = args.y + sample * out.size();
    std::fill_n(y, out.size(), 0.0f);
    ForEachPixel(g, out, [&](size_t at, size_t corner) {
      ForEachTap(g, [&](size_t tap, size_t offset) {
        const float* pixel = s.image + corner + offset;
        const float* weight = s.weight + tap * g.out_channels_padded;
        for (size_t c = 0; c < g.channels; ++c) y[at + c] += pixel[c] * weight[c];
      });
    });
  }
}

void DepthwiseBackward(const Conv2dSpec& spec, const PlainBackward& args,
                       std::span<std::byte> scratch) {
  const ConvGeometry g(spec);
  const SampleShape out = spec.conv_output();
  ScratchCarver carver(scratch);
  const DepthwiseScratch s = Carve(g, carver);
  PackWeights(g, args.weight, s.weight);
  const size_t taps = g.kernel * g.kernel;
  std::fill_n(s.dweight, taps * g.out_channels_padded, 0.0f);
  for (size_t sample = 0; sample < args.sample_count; ++sample) {
    const float* dy = args.dy + sample * out.size();
    PadImage(g, args.x + sample * g.unpadded_image, s.image);
    AddGradients(g, out, s, dy);
    if (args.dx == nullptr) continue;
    std::fill_n(s.dimage, g.image, 0.0f);
    AddDataGradients(g, out, s, dy);
    UnpadImage(g, s.dimage, args.dx + sample * g.unpadded_image);
  }
  for (size_t tap = 0; tap < taps; ++tap) {
    const float* sums = s.dweight + tap * g.out_channels_padded;
    for (size_t c = 0; c < g.channels; ++c) args.dweight[c * taps + tap] = sums[c];
  }
}

}  // namespace pando::cpu
