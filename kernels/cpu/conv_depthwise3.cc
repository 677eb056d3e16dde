// Depthwise 3x3 convolution with padding 1 and stride 1 or 2, as in MobileNet. Vector lanes are
// channels. A row of pixels is walked once per vector of channels, with the nine weights in
// registers. Each pixel is loaded once per row that needs it.
#include <algorithm>
#include <array>

#include "kernels/cpu/conv_paths.h"
#include "kernels/cpu/simd.h"
#include "kernels/scratch_carver.h"

namespace pando::cpu {
namespace {

constexpr size_t kTaps = 9;

struct Scratch {
  const Conv2dSpec& spec;
  ScratchCarver carver = {};
  size_t padded = RoundUpToLanes(spec.input.channels);
  float* weight = carver.Take<float>(kTaps * padded);  // [taps][padded channels]
  float* dweight = carver.Take<float>(kTaps * padded);
  size_t zero_count = size_t{spec.input.width} * spec.input.channels + kSlackElements;
  float* zeros = carver.Take<float>(zero_count);  // a row outside of the image
};

// Packs [channels][taps] into [taps][padded channels]; if is_turned, tap i comes from 8 − i.
void PackWeights(const Scratch& s, const float* weight, bool is_turned) {
  const size_t channels = s.spec.input.channels;
  for (size_t t = 0; t < kTaps; ++t) {
    const size_t from = is_turned ? kTaps - 1 - t : t;
    float* const packed = s.weight + t * s.padded;
    for (size_t c = 0; c < channels; ++c) packed[c] = weight[c * kTaps + from];
    std::fill(packed + channels, packed + s.padded, 0.0f);
  }
  std::fill_n(s.zeros, s.zero_count, 0.0f);
}

struct Taps {
  Vec v[3][3];
};

Taps LoadTaps(const float* weight, size_t padded) {
  Taps taps;
  for (size_t t = 0; t < kTaps; ++t) taps.v[t / 3][t % 3] = Load(weight + t * padded);
  return taps;
}

using Column = std::array<Vec, 3>;  // the pixels of three rows, one below the other
using Rows = std::array<const float*, 3>;

inline Column LoadColumn(const Rows& rows, size_t at) {
  return {Load(rows[0] + at), Load(rows[1] + at), Load(rows[2] + at)};
}

inline Vec Products(const Column& column, const Taps& taps, size_t kx) {
  return column[0] * taps.v[0][kx] + column[1] * taps.v[1][kx] + column[2] * taps.v[2][kx];
}

// Returns the rows above, at and below row y of an image. Rows outside of the image are `zeros`.
Rows RowsAround(const SampleShape& shape, const float* image, size_t y, const float* zeros) {
  const size_t row = size_t{shape.width} * shape.channels;
  return {y > 0 ? image + (y - 1) * row : zeros, image + y * row,
          y + 1 < shape.height ? image + (y + 1) * row : zeros};
}

// A walk along a row: pixels are `step` floats apart; the first `lanes` channels are stored.
struct Walk {
  size_t width, out_width;
  size_t step, lanes;
};

void ForwardRow1(const Walk& w, const Rows& rows, const Taps& taps, float* y) {
  Vec before{};  // the output pixel left of x
  Vec here{};    // at x
  for (size_t x = 0; x < w.width; ++x) {
    const Column column = LoadColumn(rows, x * w.step);
    before += Products(column, taps, 2);
    here += Products(column, taps, 1);
    if (x > 0) StorePart(y + (x - 1) * w.step, before, w.lanes);
    before = here;
    here = Products(column, taps, 0);
  }
  StorePart(y + (w.width - 1) * w.step, before, w.lanes);
}

void ForwardRow2(const Walk& w, const Rows& rows, const Taps& taps, float* y) {
  Vec left{};
  for (size_t x = 0; x < w.out_width; ++x) {
    Vec sum = left + Products(LoadColumn(rows, 2 * x * w.step), taps, 1);
    if (2 * x + 1 < w.width) {
      const Column right = LoadColumn(rows, (2 * x + 1) * w.step);
      sum += Products(right, taps, 2);
      left = Products(right, taps, 0);
    }
    StorePart(y + x * w.step, sum, w.lanes);
  }
}

// Calls f(channel, lanes of the array's last vector) for each vector of channels.
template <class F>
void ForEachVector(size_t channels, F&& f) {
  for (size_t c = 0; c < channels; c += kLanes) f(c, channels - c);
}

// A walk along a row by channels touches one cache line per pixel, too far apart for the
// processor's prefetcher. So while one row (or sample) is walked, the next is fetched, in order:
// each vector of channels fetches its share, as many lines as there are pixels.
inline void PrefetchPart(const float* next, size_t channel, size_t pixels) {
  const float* part = next + channel * pixels;
  for (size_t i = 0; i < pixels; ++i) __builtin_prefetch(part + i * kLanes);
}

// Computes y = x convolved with s.weight.
void ConvolveRows(const Scratch& s, size_t sample_count, const float* x, float* y) {
  const Conv2dSpec& spec = s.spec;
  const SampleShape in = spec.input, out = spec.conv_output();
  const size_t channels = in.channels, out_row = size_t{out.width} * channels;
  for (size_t row = 0; row < sample_count * out.height; ++row, y += out_row) {
    const Rows rows =
        RowsAround(in, x + row / out.height * in.size(), row % out.height * spec.stride, s.zeros);
    ForEachVector(channels, [&](size_t c, size_t lanes) {
      const Taps taps = LoadTaps(s.weight + c, s.padded);
      const Walk walk{in.width, out.width, channels, lanes};
      const Rows from{rows[0] + c, rows[1] + c, rows[2] + c};
      PrefetchPart(rows[2] + spec.stride * in.width * channels, c, in.width * spec.stride);
      PrefetchPart(y + out_row, c, out.width);
      spec.stride == 1 ? ForwardRow1(walk, from, taps, y + c)
                       : ForwardRow2(walk, from, taps, y + c);
    });
  }
}

// ------------------------------------------------------------------------------- data gradients

// A row of dy that reaches a row of dx, with stride 2. One row reaches an even one, two an odd one.
struct Reaching {
  const float* dy;
  size_t ky;
};

void BackwardRow2(const Walk& w, const Reaching& a, const Reaching& b, const Taps& taps,
                  float* dx) {
  Vec here_a = Load(a.dy), here_b = Load(b.dy);
  for (size_t x = 0; x < w.out_width; ++x) {
    const bool is_last = x + 1 == w.out_width;
    const Vec next_a = is_last ? Vec{} : Load(a.dy + (x + 1) * w.step);
    const Vec next_b = is_last ? Vec{} : Load(b.dy + (x + 1) * w.step);
    const Vec even = here_a * taps.v[a.ky][1] + here_b * taps.v[b.ky][1];
    StorePart(dx + 2 * x * w.step, even, w.lanes);
    if (2 * x + 1 < w.width) {
      const Vec odd = here_a * taps.v[a.ky][2] + next_a * taps.v[a.ky][0] +
                      here_b * taps.v[b.ky][2] + next_b * taps.v[b.ky][0];
      StorePart(dx + (2 * x + 1) * w.step, odd, w.lanes);
    }
    here_a = next_a;
    here_b = next_b;
  }
}

void SpreadRows(const Scratch& s, size_t sample_count, const float* dy, float* dx) {
  const SampleShape in = s.spec.input, out = s.spec.conv_output();
  const size_t channels = in.channels, out_row = size_t{out.width} * channels;
  for (size_t row = 0; row < sample_count * in.height; ++row) {
    const float* image = dy + row / in.height * out.size();
    const size_t y = row % in.height, below = (y + 1) / 2;
    const bool is_odd = y % 2 == 1;
    const Reaching a{image + y / 2 * out_row, is_odd ? 2u : 1u};
    const Reaching b{is_odd && below < out.height ? image + below * out_row : s.zeros, 0};
    ForEachVector(channels, [&](size_t c, size_t lanes) {
      const Taps taps = LoadTaps(s.weight + c, s.padded);
      PrefetchPart(b.dy + out_row, c, out.width);
      PrefetchPart(dx + (row + 1) * in.width * channels, c, in.width);
      BackwardRow2({in.width, out.width, channels, lanes}, {a.dy + c, a.ky}, {b.dy + c, b.ky}, taps,
                   dx + row * in.width * channels + c);
    });
  }
}

// ----------------------------------------------------------------------------- weight gradients

// Adds the products of one row of dy and the rows under it to `sums`.
void AddRow1(const Walk& w, const Rows& rows, const float* dy, Taps& sums) {
  Vec left{}, here = Load(dy);
  for (size_t x = 0; x < w.width; ++x) {
    const Vec right = x + 1 < w.width ? Load(dy + (x + 1) * w.step) : Vec{};
    const Column column = LoadColumn(rows, x * w.step);
    for (size_t ky = 0; ky < 3; ++ky) {
      sums.v[ky][0] += column[ky] * right;
      sums.v[ky][1] += column[ky] * here;
      sums.v[ky][2] += column[ky] * left;
    }
    left = here;
    here = right;
  }
}

void AddRow2(const Walk& w, const Rows& rows, const float* dy, Taps& sums) {
  Column left{};
  for (size_t x = 0; x < w.out_width; ++x) {
    const Vec gradient = Load(dy + x * w.step);
    const Column middle = LoadColumn(rows, 2 * x * w.step);
    const Column right = 2 * x + 1 < w.width ? LoadColumn(rows, (2 * x + 1) * w.step) : Column{};
    for (size_t ky = 0; ky < 3; ++ky) {
      sums.v[ky][0] += left[ky] * gradient;
      sums.v[ky][1] += middle[ky] * gradient;
      sums.v[ky][2] += right[ky] * gradient;
    }
    left = right;
  }
}

void AddSample(const Scratch& s, const float* x, const float* dy) {
  const SampleShape in = s.spec.input, out = s.spec.conv_output();
  const size_t channels = in.channels, stride = s.spec.stride;
  ForEachVector(channels, [&](size_t c, size_t lanes) {
    Taps sums = LoadTaps(s.dweight + c, s.padded);
    PrefetchPart(x + in.size(), c, in.height * in.width);
    PrefetchPart(dy + out.size(), c, out.height * out.width);
    const Walk walk{in.width, out.width, channels, lanes};
    for (size_t y = 0; y < out.height; ++y) {
      const Rows rows = RowsAround(in, x, y * stride, s.zeros);
      const Rows from{rows[0] + c, rows[1] + c, rows[2] + c};
      const float* gradients = dy + y * out.width * channels + c;
      stride == 1 ? AddRow1(walk, from, gradients, sums) : AddRow2(walk, from, gradients, sums);
    }
    for (size_t t = 0; t < kTaps; ++t) Store(s.dweight + t * s.padded + c, sums.v[t / 3][t % 3]);
  });
}

void Depthwise3Forward(const Conv2dSpec& spec, const PlainForward& args,
                       std::span<std::byte> scratch) {
  const Scratch s{spec, ScratchCarver(scratch)};
  PackWeights(s, args.weight, false);
  ConvolveRows(s, args.sample_count, args.x, args.y);
}

void Depthwise3Backward(const Conv2dSpec& spec, const PlainBackward& args,
                        std::span<std::byte> scratch) {
  const size_t channels = spec.input.channels;
  const Scratch s{spec, ScratchCarver(scratch)};
  PackWeights(s, args.weight, spec.stride == 1);
  std::fill_n(s.dweight, kTaps * s.padded, 0.0f);
  for (size_t i = 0; i < args.sample_count; ++i) {
    AddSample(s, args.x + i * spec.input.size(), args.dy + i * spec.conv_output().size());
  }
  for (size_t t = 0; t < kTaps; ++t) {
    for (size_t c = 0; c < channels; ++c) args.dweight[c * kTaps + t] = s.dweight[t * s.padded + c];
  }
  if (args.dx == nullptr) return;
  spec.stride == 1 ? ConvolveRows(s, args.sample_count, args.dy, args.dx)
                   : SpreadRows(s, args.sample_count, args.dy, args.dx);
}

}  // namespace

const PlainPath kDepthwise3Path{.forward = Depthwise3Forward,
                                .backward = Depthwise3Backward,
                                .scratch_bytes = [](const Conv2dSpec& spec, size_t) {
                                  return Scratch{spec}.carver.used_bytes();
                                }};

}  // namespace pando::cpu
