// 3x3 convolutions of stride 1 with Winograd's F(4x4, 3x3): a quarter of the multiplications, as 36
// matrix products, one for each point of the transforms:
//   forward:          outputs[tiles, out] = inputs[tiles, in] · kernels[in, out]
//   data gradient:    the same, with the output's gradient and the kernels rotated by 180 degrees
//   weight gradient:  kernels[out, in] = output gradientsᵀ[out, tiles] · inputs[tiles, in]
// Tiles of all samples form one sequence, which is processed in blocks, so that the data between
// transforms and products stay in the cache.
#include <algorithm>
#include <array>

#include "kernels/cpu/conv_paths.h"
#include "kernels/cpu/gemm.h"
#include "kernels/scratch_carver.h"

namespace pando::cpu {
namespace {

// ---- the transforms ----------------------------------------------------------------------------
// The transforms of Winograd's F(4x4, 3x3): 4x4 outputs of a 3x3 convolution from 6x6 inputs with
// 36 multiplications instead of 144. With input tile d, kernel g and output tile y:
//   y = Aᵀ [ (G g Gᵀ) ⊙ (Bᵀ d B) ] A      and, as its adjoint in g:
//   dg = Gᵀ [ (A dy Aᵀ) ⊙ (Bᵀ d B) ] G
// The polynomials are evaluated at 0, ±5/8, ±3/2 and infinity. Their powers stay nearer to 1 than
// those of the usual 0, ±1, ±2: a third of the rounding error.

constexpr size_t kTile = 6, kOut = 4, kKernel = 3, kPoints = kTile * kTile;

constexpr float kA = 5.0f / 8, kB = 3.0f / 2;  // exact, and so are their squares
constexpr float kA2 = kA * kA, kB2 = kB * kB, kA3 = kA2 * kA, kB3 = kB2 * kB;
// The inverse products of a point's distances from the others.
constexpr float kScale0 = 1 / (kA2 * kB2);
constexpr float kScaleA = 1 / (2 * kA2 * (kA2 - kB2));
constexpr float kScaleB = 1 / (2 * kB2 * (kB2 - kA2));

template <size_t kSize>
struct Row {
  Vec v[kSize];
};

// Bᵀ d
Row<kTile> TransformInput(const Vec (&d)[kTile]) {
  const Vec even_a = d[4] - kB2 * d[2], odd_a = kA * (d[3] - kB2 * d[1]);
  const Vec even_b = d[4] - kA2 * d[2], odd_b = kB * (d[3] - kA2 * d[1]);
  return {{kA2 * kB2 * d[0] - (kA2 + kB2) * d[2] + d[4], even_a + odd_a, even_a - odd_a,
           even_b + odd_b, even_b - odd_b, kA2 * kB2 * d[1] - (kA2 + kB2) * d[3] + d[5]}};
}

// Aᵀ m
Row<kOut> TransformOutput(const Vec (&m)[kTile]) {
  const Vec sum_a = m[1] + m[2], difference_a = m[1] - m[2];
  const Vec sum_b = m[3] + m[4], difference_b = m[3] - m[4];
  return {{m[0] + sum_a + sum_b, kA * difference_a + kB * difference_b, kA2 * sum_a + kB2 * sum_b,
           kA3 * difference_a + kB3 * difference_b + m[5]}};
}

// A dy
Row<kTile> TransformOutputGradient(const Vec (&y)[kOut]) {
  const Vec even_a = y[0] + kA2 * y[2], odd_a = kA * y[1] + kA3 * y[3];
  const Vec even_b = y[0] + kB2 * y[2], odd_b = kB * y[1] + kB3 * y[3];
  return {{y[0], even_a + odd_a, even_a - odd_a, even_b + odd_b, even_b - odd_b, y[3]}};
}

// G g
Row<kTile> TransformKernel(const Vec (&g)[kKernel]) {
  const Vec even_a = kScaleA * (g[0] + kA2 * g[2]), odd_a = kScaleA * kA * g[1];
  const Vec even_b = kScaleB * (g[0] + kB2 * g[2]), odd_b = kScaleB * kB * g[1];
  return {{kScale0 * g[0], even_a + odd_a, even_a - odd_a, even_b + odd_b, even_b - odd_b, g[2]}};
}

// Gᵀ m
Row<kKernel> TransformKernelGradient(const Vec (&m)[kTile]) {
  const Vec sum_a = kScaleA * (m[1] + m[2]), difference_a = kScaleA * (m[1] - m[2]);
  const Vec sum_b = kScaleB * (m[3] + m[4]), difference_b = kScaleB * (m[3] - m[4]);
  return {{kScale0 * m[0] + sum_a + sum_b, kA * difference_a + kB * difference_b,
           kA2 * sum_a + kB2 * sum_b + m[5]}};
}

// out = T in Tᵀ, where `transform` multiplies T with a column; in(y, x) loads, out(y, x, v) stores.
template <size_t kFrom, size_t kTo, class In, class Out, class Transform>
inline void TransformTile(In&& in, Out&& out, Transform&& transform) {
  Vec half[kTo][kFrom];
  for (size_t x = 0; x < kFrom; ++x) {
    Vec column[kFrom];
    for (size_t y = 0; y < kFrom; ++y) column[y] = in(y, x);
    const auto result = transform(column);
    for (size_t y = 0; y < kTo; ++y) half[y][x] = result.v[y];
  }
  for (size_t y = 0; y < kTo; ++y) {
    const auto result = transform(half[y]);
    for (size_t x = 0; x < kTo; ++x) out(y, x, result.v[x]);
  }
}

// ---- products of tiles -------------------------------------------------------------------------

constexpr size_t kTaps = kKernel * kKernel;

// The channels of a product's columns, as wide as its tiles of registers.
constexpr size_t kPanelVecs = kTileVecs, kPanelLanes = kPanelVecs * kLanes;
constexpr size_t kPanelRow = kPanelLanes + kLanes;
constexpr size_t kDepthBlock = 128;   // kernels that are transformed at once: 1.2 MB
constexpr size_t kGradientRows = 64;  // kernel gradients that are made at once

// The transformed tiles of a block: few enough for the L2 cache together with one panel of
// kernels...
constexpr size_t kBlockFloats = 48 << 10;
constexpr size_t kBlockTilesMin = 16;
// ... but all tiles at once, at most 6 MB, if the layer has more kernels than pixels. Then each
// panel of kernels is transformed when it is needed, and is never stored to memory.
constexpr size_t kOneBlockFloats = 3 << 19;

// The lengths of an array of transformed tiles: [kPoints][tiles of a block][row].
struct Transformed {
  size_t channels;
  size_t vecs = RoundUpToLanes(channels) / kLanes;
  size_t panels = (vecs + kPanelVecs - 1) / kPanelVecs;
  size_t row = (vecs + 1) * kLanes;  // not a power of two, because tiles would share cache lines
  size_t point(size_t tiles) const { return tiles * row + kLanes; }
};

// A convolution from one sequence of images to another, and its tiles.
struct Convolution {
  SampleShape from, to;
  size_t padding;
  size_t sample_count;
  // The rows and columns of tiles in one image.
  size_t rows = (to.height + kOut - 1) / kOut, cols = (to.width + kOut - 1) / kOut;
  Transformed in{from.channels}, out{to.channels};
  size_t tiles = sample_count * rows * cols;  // of all samples
  bool is_one_block = kPoints * tiles * (in.row + out.row) <= 2 * kOneBlockFloats;
  size_t block_tiles =
      is_one_block ? tiles : std::max(kBlockTilesMin, kBlockFloats / kPoints / in.row);
};

Convolution MakeForward(const Conv2dSpec& spec, size_t sample_count) {
  return {spec.input, spec.conv_output(), spec.padding, sample_count};
}
Convolution MakeDataGradient(const Conv2dSpec& spec, size_t sample_count) {
  return {spec.conv_output(), spec.input, kKernel - 1 - spec.padding, sample_count};
}

// The floats of one panel of kernels: [kPoints][depth][lanes of the panel].
size_t KernelPoint(size_t depth) { return depth * kPanelLanes + kLanes; }

// The floats of one panel of products: [kPoints][tiles][kPanelRow].
size_t PanelPoint(size_t tiles) { return tiles * kPanelRow + kLanes; }

size_t KernelFloats(const Convolution& c) {
  return kPoints * (c.is_one_block ? KernelPoint(std::min(kDepthBlock, c.in.channels))
                                   : c.out.panels * KernelPoint(c.in.channels));
}

size_t KernelGradientFloats(const Convolution& c) {
  const size_t row_blocks = (c.out.channels + kGradientRows - 1) / kGradientRows;
  return (c.is_one_block ? 1 : row_blocks * c.in.panels) * kPoints * KernelPoint(kGradientRows);
}

// The scratch of a convolution, or of its kernels' gradients.
struct Scratch {
  const Convolution& c;
  bool is_gradient;
  ScratchCarver carver = {};
  // Transformed inputs, output gradients, and outputs (of a panel), all for a block of tiles.
  float* in = carver.Take<float>(kPoints * c.in.point(c.block_tiles));
  float* out = carver.Take<float>(is_gradient ? kPoints * c.out.point(c.block_tiles) : 0);
  float* products = carver.Take<float>(is_gradient ? 0 : kPoints * PanelPoint(c.block_tiles));
  // Transformed kernels or their gradients: a panel, or all.
  float* kernels = carver.Take<float>(is_gradient ? KernelGradientFloats(c) : KernelFloats(c));
  // A pixel outside of the image: zeros.
  size_t zero_count = is_gradient ? std::max(c.in.row, c.out.row) : c.in.row;
  float* zeros = carver.Take<float>(zero_count);
};

// A panel: a part of an array's channels, counted in vectors.
struct Panel {
  size_t index, first, vecs;
};

template <class F>
void ForEachPanel(const Transformed& array, F&& f) {
  size_t index = 0;
  ForEvenPieces(array.vecs, kPanelVecs, [&](size_t first, size_t vecs) {
    f(Panel{index++, first, vecs});
  });
}

// ---------------------------------------------------------------------------------------- tiles

struct TilePlace {
  size_t sample;
  size_t y, x;  // its first output pixel
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

// Finds a tile's pixels; those outside of the image are `zeros`. top and left may wrap.
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

// Transforms all channels of one tile into its place in `to`, with points `point` floats apart.
template <size_t kSide, class Transform>
void TransformPixels(const TilePixels<kSide>& pixels, size_t channels, size_t point, float* to,
                     Transform&& transform) {
  for (size_t c = 0; c < channels; c += kLanes) {
    TransformTile<kSide, kTile>(
        [&pixels, c](size_t i, size_t j) { return Load(pixels[i][j] + c); },
        [to, point, c](size_t i, size_t j, Vec v) { Store(to + (i * kTile + j) * point + c, v); },
        transform);
  }
}

void TransformInputs(const Convolution& c, const Scratch& s, const float* x, size_t first,
                     size_t count) {
  ForEachTile(c, first, count, [&](size_t i, const TilePlace& at) {
    const auto pixels = PixelsAt<kTile>(c.from, x + at.sample * c.from.size(), at.y - c.padding,
                                        at.x - c.padding, s.zeros);
    TransformPixels(pixels, c.in.channels, c.in.point(count), s.in + i * c.in.row, TransformInput);
  });
}

void TransformOutputGradients(const Convolution& c, const Scratch& s, const float* dy, size_t first,
                              size_t count) {
  ForEachTile(c, first, count, [&](size_t i, const TilePlace& at) {
    const auto pixels = PixelsAt<kOut>(c.to, dy + at.sample * c.to.size(), at.y, at.x, s.zeros);
    TransformPixels(pixels, c.out.channels, c.out.point(count), s.out + i * c.out.row,
                    TransformOutputGradient);
  });
}

void TransformOutputs(const Convolution& c, const Scratch& s, const Panel& panel, size_t first,
                      size_t count, float* y) {
  const size_t point = PanelPoint(count);
  ForEachTile(c, first, count, [&](size_t i, const TilePlace& at) {
    const float* from = s.products + i * kPanelRow;
    float* image = y + at.sample * c.to.size();
    const size_t rows = std::min(kOut, c.to.height - at.y),
                 cols = std::min(kOut, c.to.width - at.x);
    for (size_t v = 0; v < panel.vecs; ++v) {
      const size_t lanes = c.out.channels - (panel.first + v) * kLanes;
      const auto load = [from = from + v * kLanes, point](size_t j, size_t k) {
        return Load(from + (j * kTile + k) * point);
      };
      float* const corner =
          image + (at.y * c.to.width + at.x) * c.to.channels + (panel.first + v) * kLanes;
      const size_t pixel = c.to.channels, row = c.to.width * pixel;
      const auto transform = [load](auto&& store) {
        TransformTile<kTile, kOut>(load, store, TransformOutput);
      };
      if (rows == kOut && cols == kOut && lanes >= kLanes) {
        transform([corner, row, pixel](size_t j, size_t k, Vec value) {
          Store(corner + j * row + k * pixel, value);
        });
      } else {
        transform([&](size_t j, size_t k, Vec value) {
          if (j < rows && k < cols) StorePart(corner + j * row + k * pixel, value, lanes);
        });
      }
    }
  });
}

// -------------------------------------------------------------------------------------- kernels

// The strides of the kernels between channels, along the depth and the lanes of a product.
struct KernelLayout {
  size_t depth_stride, lane_stride;
  bool is_turned;  // by 180 degrees: tap i is read as tap 8 − i
};

using Kernel = std::array<Vec, kTaps>;

// Loads the kernels of `lanes` channels, one per lane; `rest` floats remain from the first one on.
Kernel LoadKernel(const KernelLayout& layout, const float* weight, size_t lanes, size_t rest) {
  Kernel kernel;
  for (size_t first = 0; first < kTaps; first += kLanes) {
    Vec rows[kLanes];
    LoadTransposed(weight + first, layout.lane_stride, lanes, rest - first, rows);
    for (size_t t = first; t < std::min<size_t>(kTaps, first + kLanes); ++t) {
      kernel[layout.is_turned ? kTaps - 1 - t : t] = rows[t - first];
    }
  }
  return kernel;
}

// Stores `lanes` kernels one after another, as the inverse of LoadKernel. They are first put
// together and stored as whole vectors, because many partial stores would wait for the cache lines.
void StoreKernels(const Kernel& kernel, size_t lanes, float* to) {
  constexpr size_t kParts = RoundUpToLanes(kTaps) / kLanes;
  Vec parts[kParts][kLanes] = {};
  for (size_t t = 0; t < kTaps; ++t) parts[t / kLanes][t % kLanes] = kernel[t];
  for (auto& part : parts) Transpose(part);
  float together[kLanes * kTaps + kLanes];
  for (size_t lane = 0; lane < kLanes; ++lane) {
    for (size_t i = 0; i < kParts; ++i) {
      Store(together + lane * kTaps + i * kLanes, parts[i][lane]);  // the next overwrites the rest
    }
  }
  const size_t count = std::min<size_t>(kLanes, lanes) * kTaps;
  for (size_t i = 0; i < count; i += kLanes) StorePart(to + i, Load(together + i), count - i);
}

// A range of input channels: a part of a product's depth.
struct Depth {
  size_t first, count;
};

// Packs kernels into [kPoints][depth][lanes of the panel].
void PackKernels(const Convolution& c, const KernelLayout& layout, const Panel& panel,
                 const Depth& depth, const float* weight, float* packed) {
  const size_t point = KernelPoint(depth.count);
  const size_t size = c.in.channels * c.out.channels * kTaps;
  const auto pack = [&](size_t v, size_t k) {
    const size_t lane = (panel.first + v) * kLanes;
    const size_t at = (depth.first + k) * layout.depth_stride + lane * layout.lane_stride;
    const Kernel kernel = LoadKernel(layout, weight + at, c.out.channels - lane, size - at);
    float* to = packed + (k * panel.vecs + v) * kLanes;
    TransformTile<kKernel, kTile>(
        [&](size_t i, size_t j) { return kernel[i * kKernel + j]; },
        [to, point](size_t i, size_t j, Vec value) { Store(to + (i * kTile + j) * point, value); },
        TransformKernel);
  };
  // Reads in the order of the weights in memory.
  if (layout.lane_stride < layout.depth_stride) {
    for (size_t k = 0; k < depth.count; ++k) {
      for (size_t v = 0; v < panel.vecs; ++v) pack(v, k);
    }
  } else {
    for (size_t v = 0; v < panel.vecs; ++v) {
      for (size_t k = 0; k < depth.count; ++k) pack(v, k);
    }
  }
}

// The kernel gradients of some output channels for a panel of input channels.
struct GradientBlock {
  size_t row, rows;
  Panel panel;
  float* dkernels;  // [kPoints][rows][lanes of the panel]
};

void UnpackKernelGradients(const Convolution& c, const GradientBlock& b, float* dweight) {
  const size_t point = KernelPoint(kGradientRows);
  for (size_t o = 0; o < b.rows; ++o) {
    for (size_t v = 0; v < b.panel.vecs; ++v) {
      const size_t channel = (b.panel.first + v) * kLanes;
      const float* from = b.dkernels + (o * b.panel.vecs + v) * kLanes;
      Kernel kernel;
      TransformTile<kTile, kKernel>(
          [from, point](size_t i, size_t j) { return Load(from + (i * kTile + j) * point); },
          [&](size_t i, size_t j, Vec value) { kernel[i * kKernel + j] = value; },
          TransformKernelGradient);
      StoreKernels(kernel, c.in.channels - channel,
                   dweight + ((b.row + o) * c.in.channels + channel) * kTaps);
    }
  }
}

// ------------------------------------------------------------------------------------- products

// Computes s.products (+)= s.in · kernels.
void MultiplyKernels(const Convolution& c, const Scratch& s, const Panel& panel, const Depth& depth,
                     const float* kernels, size_t tiles) {
  for (size_t p = 0; p < kPoints; ++p) {
    MultiplyPanel({.rows = tiles,
                   .vecs = panel.vecs,
                   .depth = depth.count,
                   .a = {s.in + p * c.in.point(tiles) + depth.first, c.in.row},
                   .b = {kernels + p * KernelPoint(depth.count), panel.vecs * kLanes},
                   .c = s.products + p * PanelPoint(tiles),
                   .c_row_stride = kPanelRow,
                   .cols = panel.vecs * kLanes,
                   .continues = depth.first > 0});
  }
}

void AddKernelGradients(const Convolution& c, const Scratch& s, const GradientBlock& b,
                        size_t tiles, bool continues) {
  for (size_t p = 0; p < kPoints; ++p) {
    MultiplyPanel({.rows = b.rows,
                   .vecs = b.panel.vecs,
                   .depth = tiles,
                   .a = {s.out + p * c.out.point(tiles) + b.row, 1, c.out.row},
                   .b = {s.in + p * c.in.point(tiles) + b.panel.first * kLanes, c.in.row},
                   .c = b.dkernels + p * KernelPoint(kGradientRows),
                   .c_row_stride = b.panel.vecs * kLanes,
                   .cols = b.panel.vecs * kLanes,
                   .continues = continues});
  }
}

// Computes y = x convolved with the kernels, which are transformed once and kept. If there are more
// kernels than pixels, a part of them is transformed at a time.
void Convolve(const Convolution& c, const KernelLayout& layout, const float* weight, const float* x,
              float* y, std::span<std::byte> scratch) {
  const Scratch s{c, false, ScratchCarver(scratch)};
  std::fill_n(s.zeros, s.zero_count, 0.0f);
  const size_t panel_floats = c.is_one_block ? 0 : kPoints * KernelPoint(c.in.channels);
  const auto pack = [&](const Panel& panel, const Depth& depth) {
    PackKernels(c, layout, panel, depth, weight, s.kernels + panel.index * panel_floats);
  };
  if (!c.is_one_block) {
    ForEachPanel(c.out, [&](const Panel& panel) { pack(panel, {0, c.in.channels}); });
  }
  const size_t depth_block = c.is_one_block ? kDepthBlock : c.in.channels;
  ForEvenPieces(c.tiles, c.block_tiles, [&](size_t first, size_t count) {
    TransformInputs(c, s, x, first, count);
    ForEachPanel(c.out, [&](const Panel& panel) {
      for (size_t k = 0; k < c.in.channels; k += depth_block) {
        const Depth depth{k, std::min(depth_block, c.in.channels - k)};
        if (c.is_one_block) pack(panel, depth);
        MultiplyKernels(c, s, panel, depth, s.kernels + panel.index * panel_floats, count);
      }
      TransformOutputs(c, s, panel, first, count, y);
    });
  });
}

// Calls f(block) for all of the kernels' gradients.
template <class F>
void ForEachGradientBlock(const Convolution& c, const Scratch& s, F&& f) {
  float* dkernels = s.kernels;
  ForEachPanel(c.in, [&](const Panel& panel) {
    for (size_t row = 0; row < c.out.channels; row += kGradientRows) {
      f(GradientBlock{row, std::min(kGradientRows, c.out.channels - row), panel, dkernels});
      if (!c.is_one_block) dkernels += kPoints * KernelPoint(kGradientRows);
    }
  });
}

void ComputeKernelGradients(const Convolution& c, const PlainBackward& args,
                            std::span<std::byte> scratch) {
  const Scratch s{c, true, ScratchCarver(scratch)};
  std::fill_n(s.zeros, s.zero_count, 0.0f);
  ForEvenPieces(c.tiles, c.block_tiles, [&](size_t first, size_t count) {
    TransformInputs(c, s, args.x, first, count);
    TransformOutputGradients(c, s, args.dy, first, count);
    ForEachGradientBlock(c, s, [&](const GradientBlock& block) {
      AddKernelGradients(c, s, block, count, first > 0);
      if (first + count == c.tiles) UnpackKernelGradients(c, block, args.dweight);
    });
  });
}

void WinogradForward(const Conv2dSpec& spec, const PlainForward& args,
                     std::span<std::byte> scratch) {
  const Convolution c = MakeForward(spec, args.sample_count);
  Convolve(c, {kTaps, kTaps * c.in.channels, false}, args.weight, args.x, args.y, scratch);
}

void WinogradBackward(const Conv2dSpec& spec, const PlainBackward& args,
                      std::span<std::byte> scratch) {
  ComputeKernelGradients(MakeForward(spec, args.sample_count), args, scratch);
  if (args.dx == nullptr) return;
  const Convolution c = MakeDataGradient(spec, args.sample_count);
  Convolve(c, {kTaps * c.out.channels, kTaps, true}, args.weight, args.dy, args.dx, scratch);
}

size_t WinogradScratchBytes(const Conv2dSpec& spec, size_t sample_count_max) {
  size_t bytes = 0;
  // Fewer samples can need more scratch: they may fit into one block where more samples do not.
  for (size_t n = 1; n <= sample_count_max; ++n) {
    const Convolution forward = MakeForward(spec, n), data_gradient = MakeDataGradient(spec, n);
    for (const Scratch& s :
         {Scratch{forward, false}, Scratch{data_gradient, false}, Scratch{forward, true}}) {
      bytes = std::max(bytes, s.carver.used_bytes());
    }
  }
  return bytes;
}

}  // namespace

const PlainPath kWinogradPath{.forward = WinogradForward,
                              .backward = WinogradBackward,
                              .scratch_bytes = WinogradScratchBytes};

}  // namespace pando::cpu
