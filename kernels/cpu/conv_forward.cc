// Convolution forward on the CPU. Vector lanes are output channels. A tile is a few pixels (windows
// of the 2x2 pool, or pixels in a row) times as many channel vectors as fit into registers. Each
// step loads those vectors of weights once and multiplies them with each pixel's broadcast.
#include <array>

#include "kernels/cpu/conv_paths.h"
#include "kernels/scratch_carver.h"

namespace pando::cpu {
namespace {

// A tile has at least eight sums: two multiply-adds start per cycle, and each takes four cycles.
constexpr size_t TilePixels(size_t vecs) { return vecs == 1 ? 8 : 4; }
constexpr size_t kTilePixelsMax = 8;
// 4 x 3 sums + 3 weights + 1 broadcast fill 16 registers; 4 x 5 + 5 + 1 stay within 32.
constexpr size_t kTileVecsMax = kRegisters == 32 ? 5 : 3;

struct Scratch {
  const ConvGeometry& g;
  ScratchCarver carver = {};
  // [piece][kernel rows][run][vecs of the piece · kLanes]
  float* weight = carver.Take<float>(g.out_channels_padded * g.kernel * g.run);
  float* bias = carver.Take<float>(g.out_channels_padded);
  float* image = carver.Take<float>(g.padding == 0 ? 0 : g.image + kSlackElements);  // padded
};

// Packs [out, in, kh, kw] into [piece][kh][kw][in][piece's channels]; missing channels are zero.
void PackWeights(const ConvGeometry& g, const float* weight, float* packed) {
  const size_t taps = g.kernel * g.kernel;
  ForEvenPieces(g.out_channels_padded / kLanes, kTileVecsMax, [&](size_t vec, size_t vec_count) {
    for (size_t tap = 0; tap < taps; ++tap) {
      for (size_t c = 0; c < g.channels; ++c) {
        for (size_t o = vec * kLanes; o < (vec + vec_count) * kLanes; ++o) {
          *packed++ = o < g.out_channels ? weight[(o * g.channels + c) * taps + tap] : 0.0f;
        }
      }
    }
  });
}

// The destination of a tile's sums, and the operations before they are stored.
struct TileOutput {
  const float* bias = nullptr;           // for the piece's first channel; the next arrays too
  const float* channel_scale = nullptr;  // for the sample, or null
  float* y = nullptr;
  int32_t* argmax = nullptr;
  size_t pixel_floats = 0;   // from one output pixel to the next
  size_t pixel_count = 0;    // existing output pixels of the tile
  size_t channel_count = 0;  // channels from the piece's first to the last one
  bool relu = false;
};

inline Vec Finish(const TileOutput& out, Vec sum, size_t channel) {
  sum += Load(out.bias + channel);
  if (out.channel_scale != nullptr) sum *= Load(out.channel_scale + channel);
  if (out.relu) sum = sum > 0.0f ? sum : Vec{};
  return sum;
}

template <bool kPool, size_t kPixels, size_t kVecs>
inline void StoreTile(const TileOutput& out, const Vec (&sums)[kPixels][kVecs]) {
  constexpr int32_t kWindow = kPool ? 4 : 1;
  for (size_t p = 0; p < kPixels / kWindow; ++p) {
    if (p == out.pixel_count) return;
    for (size_t v = 0; v < kVecs; ++v) {
      Vec largest = sums[kWindow * p][v];
      IntVec where{};
      for (int32_t i = 1; i < kWindow; ++i) {
        const Vec sum = sums[kWindow * p + i][v];
        const IntVec greater = sum > largest;
        largest = greater ? sum : largest;
        where = greater ? IntVec{} + i : where;
      }
      const size_t channel = v * kLanes, at = p * out.pixel_floats + channel;
      StorePart(out.y + at, Finish(out, largest, channel), out.channel_count - channel);
      if constexpr (kPool) StorePart(out.argmax + at, where, out.channel_count - channel);
    }
  }
}

struct TileInput {
  const float* pixel[kTilePixelsMax] = {};  // first float under the kernel, for each output pixel
  const float* weight = nullptr;            // for the piece
  size_t kernel = 0, run = 0, row = 0;
};

// kRun: the run's length if it is known at compile time (5: the first layer of small networks,
// whose run is too short for a loop), else 0.
template <size_t kVecs, size_t kRun, bool kPool>
void ComputeTile(const TileInput& in, const TileOutput& out) {
  const size_t run = kRun == 0 ? in.run : kRun;
  constexpr size_t kPixels = TilePixels(kVecs);
  Vec sums[kPixels][kVecs];
  for (size_t p = 0; p < kPixels; ++p) {
    for (size_t v = 0; v < kVecs; ++v) sums[p][v] = Vec{};
  }
  const float* w = in.weight;
  for (size_t r = 0; r < in.kernel; ++r) {
    const float* pixel[kPixels];
    for (size_t p = 0; p < kPixels; ++p) pixel[p] = in.pixel[p] + r * in.row;
    for (size_t k = 0; k < run; ++k, w += kVecs * kLanes) {
      Vec weight[kVecs];
      for (size_t v = 0; v < kVecs; ++v) weight[v] = InRegister(Load(w + v * kLanes));
      for (size_t p = 0; p < kPixels; ++p) {
        const Vec x = Broadcast(pixel[p][k]);
        for (size_t v = 0; v < kVecs; ++v) sums[p][v] += x * weight[v];
      }
    }
  }
  StoreTile<kPool>(out, sums);
}

using TileFunction = void (*)(const TileInput&, const TileOutput&);

template <size_t kRun, bool kPool>
constexpr auto kComputeTile = MakeTable<kTileVecsMax>([]<size_t kVec>() -> TileFunction {
  return ComputeTile<kVec + 1, kRun, kPool>;
});

TileFunction ChooseTile(const ConvGeometry& g, size_t vecs) {
  if (g.pool == 2) return (g.run == 5 ? kComputeTile<5, true> : kComputeTile<0, true>)[vecs - 1];
  return (g.run == 5 ? kComputeTile<5, false> : kComputeTile<0, false>)[vecs - 1];
}

using TileOffsets = std::array<size_t, kTilePixelsMax>;

// Returns the offsets of a tile's pixels from its first one. Output pixels past the last one repeat
// it: they are computed but not stored.
TileOffsets OffsetsOfTile(const ConvGeometry& g, size_t pixel_count) {
  TileOffsets offsets{};
  for (size_t p = 0; p < kTilePixelsMax; ++p) {
    const size_t window = p % (g.pool * g.pool);
    const size_t cell = std::min(p / (g.pool * g.pool), pixel_count - 1);
    const size_t right = cell * g.pool + window % g.pool, down = window / g.pool;
    offsets[p] = down * g.stride * g.row + right * g.stride * g.channels;
  }
  return offsets;
}

// Computes all tiles of one image and one piece of the channels.
void ComputeImage(const ConvGeometry& g, size_t vecs, const float* image, TileInput in,
                  TileOutput out) {
  const TileFunction tile = ChooseTile(g, vecs);
  const size_t pixels = TilePixels(vecs);
  const size_t step = pixels / (g.pool * g.pool);
  const size_t rest = (g.out_width - 1) % step + 1;  // in the last tile of a row
  const TileOffsets inside = OffsetsOfTile(g, step), at_end = OffsetsOfTile(g, rest);
  for (size_t y = 0; y < g.out_height; ++y) {
    for (size_t x = 0; x < g.out_width; x += step) {
      const bool is_last = x + step >= g.out_width;
      const TileOffsets& offsets = is_last ? at_end : inside;
      const float* corner = image + g.CellOffset(y, x);
      for (size_t p = 0; p < pixels; ++p) in.pixel[p] = corner + offsets[p];
      out.pixel_count = is_last ? rest : step;
      tile(in, out);
      out.y += out.pixel_count * g.out_channels;
      out.argmax += g.pool == 2 ? out.pixel_count * g.out_channels : 0;
    }
  }
}

}  // namespace

void SmallConvForward(const Conv2dSpec& spec, const Conv2dForwardArgs& args,
                      std::span<std::byte> scratch) {
  const ConvGeometry g{spec};
  const Scratch s{g, ScratchCarver(scratch)};
  PackWeights(g, args.weight, s.weight);
  std::fill_n(s.bias, g.out_channels_padded, 0.0f);
  if (args.bias != nullptr) std::copy_n(args.bias, g.out_channels, s.bias);

  for (size_t sample = 0; sample < args.sample_count; ++sample) {
    const float* image = args.x + sample * g.unpadded_image;
    if (g.padding > 0) {
      PadImage(g, image, s.image);
      image = s.image;
    }
    ForEvenPieces(g.out_channels_padded / kLanes, kTileVecsMax, [&](size_t vec, size_t vec_count) {
      const size_t channel = vec * kLanes;
      const size_t first = sample * g.cells * g.out_channels + channel;
      const TileInput in{.weight = s.weight + channel * g.kernel * g.run,
                         .kernel = g.kernel,
                         .run = g.run,
                         .row = g.row};
      const float* scale = args.channel_scale;
      const TileOutput out{
          .bias = s.bias + channel,
          .channel_scale = scale == nullptr ? nullptr : scale + sample * g.out_channels + channel,
          .y = args.y + first,
          .argmax = g.pool == 2 ? args.argmax + first : nullptr,
          .pixel_floats = g.out_channels,
          .channel_count = g.out_channels - channel,
          .relu = spec.relu};
      ComputeImage(g, vec_count, image, in, out);
    });
  }
}

size_t SmallConvForwardScratchBytes(const Conv2dSpec& spec) {
  return Scratch{{spec}}.carver.used_bytes();
}

}  // namespace pando::cpu
