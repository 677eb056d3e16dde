// 3x3 convolutions of stride 1 by Winograd's F(4x4, 3x3) (winograd.h): a quarter of the
// multiplications, which become 36 matrix products, one for each point of the transforms:
//   forward:          outputs[tiles, out] = inputs[tiles, in] · kernels[in, out]
//   data gradient:    the same, of the output's gradient with the kernels turned by half
//   weight gradient:  kernels[out, in] = output gradientsᵀ[out, tiles] · inputs[tiles, in]
// Tiles of all samples stand in one row and are done in blocks, so that what lies between
// transforms and products stays in the cache.
#include <algorithm>
#include <array>

#include "kernels/cpu/conv_paths.h"
#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/winograd.h"

namespace pando::cpu {
namespace {

using winograd::kKernel;
using winograd::kOut;
using winograd::kPoints;
using winograd::kTile;
constexpr size_t kTaps = kKernel * kKernel;

// Transformed tiles of a block, in and out: as much as a second cache holds beside the kernels. But
// not fewer tiles than make it worth to read the kernels of many channels from farther away.
constexpr size_t kBlockFloats = 160 << 10;
constexpr size_t kBlockTilesMin = 60;

// Lengths of an array of transformed tiles: [kPoints][tiles of a block][row].
struct Transformed {
  explicit Transformed(size_t channel_count)
      : channels(channel_count), padded(RoundUpToLanes(channels)), row(padded + kLanes) {}
  size_t point(size_t tiles) const { return tiles * row + kLanes; }
  size_t channels, padded;
  size_t row;  // no power of two: tiles would fall on the same lines of the cache
};

// A convolution from one row of images to another, and its cut into tiles.
struct Convolution {
  Convolution(const SampleShape& from_shape, const SampleShape& to_shape, size_t padding_pixels)
      : from(from_shape),
        to(to_shape),
        padding(padding_pixels),
        rows((to.height + kOut - 1) / kOut),
        cols((to.width + kOut - 1) / kOut),
        in(from.channels),
        out(to.channels),
        block_tiles(std::max(kBlockTilesMin, kBlockFloats / kPoints / (in.row + out.row))) {}

  SampleShape from, to;
  size_t padding;
  size_t rows, cols;  // of tiles, in one image
  Transformed in, out;
  size_t block_tiles;
};

Convolution ForwardOf(const Conv2dSpec& spec) {
  return {spec.input, spec.conv_output(), spec.padding};
}
Convolution DataGradientOf(const Conv2dSpec& spec) {
  return {spec.conv_output(), spec.input, kKernel - 1 - spec.padding};
}

struct Scratch {
  float* in;       // transformed inputs of a block
  float* out;      // transformed outputs, or their gradients
  float* kernels;  // transformed, packed for the products; or their gradients
  float* zeros;    // a pixel outside
};

size_t KernelPoint(const Transformed& depth, const Transformed& lanes) {
  return depth.channels * lanes.row + kLanes;
}

Scratch Carve(const Convolution& c, ScratchCarver& carver) {
  Scratch s{};
  s.in = carver.Take<float>(kPoints * c.in.point(c.block_tiles));
  s.out = carver.Take<float>(kPoints * c.out.point(c.block_tiles));
  s.kernels =
      carver.Take<float>(kPoints * std::max(KernelPoint(c.in, c.out), KernelPoint(c.out, c.in)));
  s.zeros = carver.Take<float>(std::max(c.in.padded, c.out.padded));
  if (s.zeros != nullptr) std::fill_n(s.zeros, std::max(c.in.padded, c.out.padded), 0.0f);
  return s;
}

// ---------------------------------------------------------------------------------------- tiles

struct TilePlace {
  size_t sample;
  size_t y, x;  // of its first output pixel
};

// Calls f(index in the block, place) for tiles [first, first + count).
template <class F>
void ForEachTile(const Convolution& c, size_t first, size_t count, F&& f) {
  for (size_t i = 0; i < count; ++i) {
    const size_t t = first + i;
    f(i, TilePlace{t / (c.rows * c.cols), t / c.cols % c.rows * kOut, t % c.cols * kOut});
  }
}

template <size_t kSide>
using TilePixels = std::array<std::array<const float*, kSide>, kSide>;

// Where a tile's pixels lie; `zeros` for those outside of the image. top, left: may wrap.
template <size_t kSide>
TilePixels<kSide> PixelsAt(const SampleShape& shape, const float* image, size_t top, size_t left,
                           const float* zeros) {
  TilePixels<kSide> pixels;
  for (size_t i = 0; i < kSide; ++i) {
    for (size_t j = 0; j < kSide; ++j) {
      const size_t y = top + i, x = left + j;
      pixels[i][j] = y < shape.height && x < shape.width
                         ? image + (y * shape.width + x) * shape.channels
                         : zeros;
    }
  }
  return pixels;
}

// Transforms one tile, all channels, to its place in `to`, whose points are `point` floats apart.
template <size_t kSide, class Transform>
void TransformPixels(const TilePixels<kSide>& pixels, size_t channels, size_t point, float* to,
                     Transform&& transform) {
  for (size_t c = 0; c < channels; c += kLanes) {
    Vec tile[kSide][kSide], result[kTile][kTile];
    for (size_t i = 0; i < kSide; ++i) {
      for (size_t j = 0; j < kSide; ++j) tile[i][j] = Load(pixels[i][j] + c);
    }
    winograd::TransformTile(tile, result, transform);
    for (size_t p = 0; p < kPoints; ++p) Store(to + p * point + c, result[p / kTile][p % kTile]);
  }
}

void TransformInputs(const Convolution& c, const Scratch& s, const float* x, size_t first,
                     size_t count) {
  ForEachTile(c, first, count, [&](size_t i, const TilePlace& at) {
    const auto pixels = PixelsAt<kTile>(c.from, x + at.sample * c.from.size(), at.y - c.padding,
                                        at.x - c.padding, s.zeros);
    TransformPixels(pixels, c.in.channels, c.in.point(count), s.in + i * c.in.row,
                    winograd::TransformInput);
  });
}

void TransformOutputGradients(const Convolution& c, const Scratch& s, const float* dy, size_t first,
                              size_t count) {
  ForEachTile(c, first, count, [&](size_t i, const TilePlace& at) {
    const auto pixels = PixelsAt<kOut>(c.to, dy + at.sample * c.to.size(), at.y, at.x, s.zeros);
    TransformPixels(pixels, c.out.channels, c.out.point(count), s.out + i * c.out.row,
                    winograd::TransformOutputGradient);
  });
}

void TransformOutputs(const Convolution& c, const Scratch& s, size_t first, size_t count,
                      float* y) {
  const size_t point = c.out.point(count);
  ForEachTile(c, first, count, [&](size_t i, const TilePlace& at) {
    const float* from = s.out + i * c.out.row;
    float* image = y + at.sample * c.to.size();
    const size_t rows = std::min(kOut, c.to.height - at.y),
                 cols = std::min(kOut, c.to.width - at.x);
    for (size_t channel = 0; channel < c.out.channels; channel += kLanes) {
      Vec tile[kTile][kTile], result[kOut][kOut];
      for (size_t p = 0; p < kPoints; ++p) {
        tile[p / kTile][p % kTile] = Load(from + p * point + channel);
      }
      winograd::TransformTile(tile, result, winograd::TransformOutput);
      for (size_t j = 0; j < rows; ++j) {
        for (size_t k = 0; k < cols; ++k) {
          const size_t pixel = (at.y + j) * c.to.width + at.x + k;
          StorePart(image + pixel * c.to.channels + channel, result[j][k],
                    c.out.channels - channel);
        }
      }
    }
  });
}

// -------------------------------------------------------------------------------------- kernels

// Where the kernels lie from one channel to the next, along the depth and the lanes of a product.
struct KernelLayout {
  size_t depth_stride, lane_stride;
  bool is_turned;  // by half: tap i is read as tap 8 − i
};

struct Kernel {
  Vec tap[kKernel][kKernel];
};

Kernel LoadKernel(const KernelLayout& layout, const float* weight, size_t lanes) {
  float taps[kTaps][kLanes] = {};
  for (size_t lane = 0; lane < std::min<size_t>(lanes, kLanes); ++lane) {
    for (size_t t = 0; t < kTaps; ++t) taps[t][lane] = weight[lane * layout.lane_stride + t];
  }
  Kernel kernel;
  for (size_t t = 0; t < kTaps; ++t) {
    const size_t to = layout.is_turned ? kTaps - 1 - t : t;
    kernel.tap[to / kKernel][to % kKernel] = Load(taps[t]);
  }
  return kernel;
}

// To [kPoints][panel][depth][lanes of the panel].
void PackKernels(const Transformed& depth, const Transformed& lanes, const KernelLayout& layout,
                 const float* weight, float* packed) {
  const size_t point = KernelPoint(depth, lanes);
  ForEvenPieces(lanes.padded / kLanes, kTileVecs, [&](size_t first, size_t vecs) {
    for (size_t v = 0; v < vecs; ++v) {
      const size_t lane = (first + v) * kLanes;
      for (size_t k = 0; k < depth.channels; ++k) {
        const Kernel kernel =
            LoadKernel(layout, weight + k * layout.depth_stride + lane * layout.lane_stride,
                       lanes.channels - lane);
        Vec result[kTile][kTile];
        winograd::TransformTile(kernel.tap, result, winograd::TransformKernel);
        float* to = packed + first * kLanes * depth.channels + (k * vecs + v) * kLanes;
        for (size_t p = 0; p < kPoints; ++p) {
          Store(to + p * point, result[p / kTile][p % kTile]);
        }
      }
    }
  });
}

// From [kPoints][out][in].
void UnpackKernelGradients(const Convolution& c, const float* dkernels, float* dweight) {
  const size_t point = KernelPoint(c.out, c.in);
  for (size_t o = 0; o < c.out.channels; ++o) {
    for (size_t channel = 0; channel < c.in.channels; channel += kLanes) {
      Vec tile[kTile][kTile], result[kKernel][kKernel];
      for (size_t p = 0; p < kPoints; ++p) {
        tile[p / kTile][p % kTile] = Load(dkernels + p * point + o * c.in.row + channel);
      }
      winograd::TransformTile(tile, result, winograd::TransformKernelGradient);
      float taps[kTaps][kLanes];
      for (size_t t = 0; t < kTaps; ++t) Store(taps[t], result[t / kKernel][t % kKernel]);
      float* to = dweight + (o * c.in.channels + channel) * kTaps;
      for (size_t lane = 0; lane < std::min<size_t>(kLanes, c.in.channels - channel); ++lane) {
        for (size_t t = 0; t < kTaps; ++t) *to++ = taps[t][lane];
      }
    }
  }
}

// ------------------------------------------------------------------------------------- products

// Calls f(first row, rows, first vector, vectors) for each tile of registers of a product.
template <class F>
void ForEachGemmTile(size_t rows, size_t vecs, F&& f) {
  ForEvenPieces(vecs, kTileVecs, [&](size_t vec, size_t tile_vecs) {
    ForEvenPieces(rows, kTileRows,
                  [&](size_t row, size_t tile_rows) { f(row, tile_rows, vec, tile_vecs); });
  });
}

void MultiplyKernels(const Convolution& c, const Scratch& s, size_t tiles) {
  for (size_t p = 0; p < kPoints; ++p) {
    const float* in = s.in + p * c.in.point(tiles);
    const float* kernels = s.kernels + p * KernelPoint(c.in, c.out);
    float* out = s.out + p * c.out.point(tiles);
    ForEachGemmTile(tiles, c.out.padded / kLanes,
                    [&](size_t row, size_t rows, size_t vec, size_t vecs) {
                      ComputeGemmTile(rows, vecs,
                                      {.depth = c.in.channels,
                                       .a = in + row * c.in.row,
                                       .a_row_stride = c.in.row,
                                       .a_col_stride = 1,
                                       .b = kernels + vec * kLanes * c.in.channels,
                                       .b_row_stride = vecs * kLanes,
                                       .c = out + row * c.out.row + vec * kLanes,
                                       .c_row_stride = c.out.row,
                                       .cols = vecs * kLanes,
                                       .continues = false});
                    });
  }
}

void AddKernelGradients(const Convolution& c, const Scratch& s, size_t tiles, bool continues) {
  for (size_t p = 0; p < kPoints; ++p) {
    const float* in = s.in + p * c.in.point(tiles);
    const float* out = s.out + p * c.out.point(tiles);
    float* dkernels = s.kernels + p * KernelPoint(c.out, c.in);
    ForEachGemmTile(c.out.channels, c.in.padded / kLanes,
                    [&](size_t row, size_t rows, size_t vec, size_t vecs) {
                      ComputeGemmTile(rows, vecs,
                                      {.depth = tiles,
                                       .a = out + row,
                                       .a_row_stride = 1,
                                       .a_col_stride = c.out.row,
                                       .b = in + vec * kLanes,
                                       .b_row_stride = c.in.row,
                                       .c = dkernels + row * c.in.row + vec * kLanes,
                                       .c_row_stride = c.in.row,
                                       .cols = vecs * kLanes,
                                       .continues = continues});
                    });
  }
}

// y = x convolved with s.kernels.
void Convolve(const Convolution& c, const Scratch& s, size_t sample_count, const float* x,
              float* y) {
  ForEvenPieces(sample_count * c.rows * c.cols, c.block_tiles, [&](size_t first, size_t count) {
    TransformInputs(c, s, x, first, count);
    MultiplyKernels(c, s, count);
    TransformOutputs(c, s, first, count, y);
  });
}

}  // namespace

size_t WinogradScratchBytes(const Conv2dSpec& spec) {
  ScratchCarver forward, backward;
  Carve(ForwardOf(spec), forward);
  Carve(DataGradientOf(spec), backward);
  return std::max(forward.used_bytes(), backward.used_bytes());
}

void WinogradForward(const Conv2dSpec& spec, const PlainForward& args,
                     std::span<std::byte> scratch) {
  const Convolution c = ForwardOf(spec);
  ScratchCarver carver(scratch);
  const Scratch s = Carve(c, carver);
  PackKernels(c.in, c.out, {kTaps, kTaps * c.in.channels, false}, args.weight, s.kernels);
  Convolve(c, s, args.sample_count, args.x, args.y);
}

void WinogradBackward(const Conv2dSpec& spec, const PlainBackward& args,
                      std::span<std::byte> scratch) {
  const Convolution forward = ForwardOf(spec);
  {
    ScratchCarver carver(scratch);
    const Scratch s = Carve(forward, carver);
    ForEvenPieces(args.sample_count * forward.rows * forward.cols, forward.block_tiles,
                  [&](size_t first, size_t count) {
                    TransformInputs(forward, s, args.x, first, count);
                    TransformOutputGradients(forward, s, args.dy, first, count);
                    AddKernelGradients(forward, s, count, first > 0);
                  });
    UnpackKernelGradients(forward, s.kernels, args.dweight);
  }
  if (args.dx == nullptr) return;
  const Convolution c = DataGradientOf(spec);
  ScratchCarver carver(scratch);
  const Scratch s = Carve(c, carver);
  PackKernels(c.in, c.out, {kTaps * c.out.channels, kTaps, true}, args.weight, s.kernels);
  Convolve(c, s, args.sample_count, args.dy, args.dx);
}

}  // namespace pando::cpu
