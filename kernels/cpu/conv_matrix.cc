// Convolutions of many channels as matrix products. Each output pixel has a row of `depth` floats,
// the pixels under its kernel: [kernel · kernel][channels], zeros where there are none.
//   forward:          y[pixels, out] = rows[pixels, depth] · weight[depth, out]
//   weight gradient:  dweight[out, depth] = dyᵀ[out, pixels] · rows[pixels, depth]
//   data gradient:    drows[pixels, depth] = dy[pixels, out] · weight[out, depth], added to dx
// Pixels of all samples stand in one row and are done in blocks. Of a 1x1 kernel with stride 1 the
// rows are the pixels themselves and nothing is copied.
#include <algorithm>

#include "kernels/cpu/conv_paths.h"
#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/transpose.h"

namespace pando::cpu {
namespace {

// Where weights are few, a block's rows and outputs stay in the second cache from one product to
// the next; else blocks are larger, or the weights are read too often, and products are done in
// turn.
constexpr size_t kFewWeights = 128 << 10;
constexpr size_t kFewWeightsBlockFloats = 96 << 10;
constexpr size_t kBlockFloats = 256 << 10;
constexpr size_t kBlockPixelsMin = 64;
constexpr size_t kDepthBlock = 512;  // 128 KB of a panel of weights

struct Geometry {
  explicit Geometry(const Conv2dSpec& conv)
      : spec(conv),
        to(spec.conv_output()),
        channels(spec.input.channels),
        taps(size_t{spec.kernel} * spec.kernel),
        depth(taps * channels),
        out(spec.out_channels),
        is_pixels(spec.kernel == 1 && spec.stride == 1 && spec.padding == 0),
        row(is_pixels ? channels : RoundUpToLanes(depth) + kLanes),
        gradient_row(RoundUpToLanes(depth)),
        has_few_weights(depth * out <= kFewWeights),
        block_pixels(std::max(kBlockPixelsMin, has_few_weights
                                                   ? kFewWeightsBlockFloats / (row + out)
                                                   : kBlockFloats / row)) {}

  const Conv2dSpec& spec;
  SampleShape to;
  size_t channels, taps, depth, out;
  bool is_pixels;
  size_t row;  // from one pixel's row to the next; copied ones never a power of two
  size_t gradient_row;
  bool has_few_weights;
  size_t block_pixels;
};

struct Scratch {
  float* rows;     // [pixels of a block][row]
  float* weight;   // packed, of one product or the other
  float* dweight;  // [out][gradient_row]
  float* kernels;  // of one output channel: [depth]
};

Scratch Carve(const Geometry& g, ScratchCarver& carver) {
  Scratch s{};
  s.rows = carver.Take<float>(g.is_pixels ? 0 : g.block_pixels * g.row + kSlackFloats);
  s.weight = carver.Take<float>(
      std::max(g.depth * RoundUpToLanes(g.out), g.out * RoundUpToLanes(g.depth)));
  s.dweight = carver.Take<float>(g.out * g.gradient_row);
  s.kernels = carver.Take<float>(g.depth);
  return s;
}

// ----------------------------------------------------------------------------------------- rows

// Part of a pixel's row that lies in one piece in the images, or in the padding.
struct Run {
  size_t at;     // first float in the row
  size_t image;  // first float in the images
  size_t floats;
  bool is_padding;
};

// Calls f(run) for the parts of a pixel's row, in order.
template <class F>
void ForEachRun(const Geometry& g, size_t pixel, F&& f) {
  const SampleShape& in = g.spec.input;
  const size_t sample = pixel / (g.to.height * g.to.width);
  const size_t y = pixel / g.to.width % g.to.height * g.spec.stride;  // in the padded image
  const size_t x = pixel % g.to.width * g.spec.stride;
  const size_t kernel = g.spec.kernel, padding = g.spec.padding;
  const size_t left = std::min(kernel, std::max(padding, x) - x);  // taps in the padding
  const size_t right = std::max(left, std::min(kernel, std::max(in.width + padding, x) - x));
  for (size_t ky = 0; ky < kernel; ++ky) {
    const size_t at = ky * kernel * g.channels, in_y = y + ky - padding;  // may wrap
    if (in_y >= in.height) {
      f(Run{at, 0, kernel * g.channels, true});
      continue;
    }
    const size_t first = ((sample * in.height + in_y) * in.width + x + left - padding) * g.channels;
    f(Run{at, 0, left * g.channels, true});
    f(Run{at + left * g.channels, first, (right - left) * g.channels, false});
    f(Run{at + right * g.channels, 0, (kernel - right) * g.channels, true});
  }
}

// The rows of pixels [first, first + count): copied, or where they lie.
const float* Rows(const Geometry& g, const Scratch& s, const float* x, size_t first, size_t count) {
  if (g.is_pixels) return x + first * g.row;
  for (size_t i = 0; i < count; ++i) {
    float* row = s.rows + i * g.row;
    ForEachRun(g, first + i, [&](const Run& run) {
      run.is_padding ? std::fill_n(row + run.at, run.floats, 0.0f)
                     : std::copy_n(x + run.image, run.floats, row + run.at);
    });
  }
  return s.rows;
}

void AddRows(const Geometry& g, const Scratch& s, size_t first, size_t count, float* dx) {
  for (size_t i = 0; i < count; ++i) {
    const float* row = s.rows + i * g.row;
    ForEachRun(g, first + i, [&](const Run& run) {
      if (run.is_padding) return;
      for (size_t j = 0; j < run.floats; ++j) dx[run.image + j] += row[run.at + j];
    });
  }
}

// -------------------------------------------------------------------------------------- weights

// Calls f(first column, columns) for each panel of a matrix's columns.
template <class F>
void ForEachPanel(size_t cols, F&& f) {
  ForEvenPieces(RoundUpToLanes(cols) / kLanes, kTileVecs,
                [&](size_t vec, size_t vecs) { f(vec * kLanes, vecs * kLanes); });
}

// [out][channels][taps] to [panel of out][depth][lanes of the panel].
void PackForward(const Geometry& g, const float* weight, float* packed) {
  ForEachPanel(g.out, [&](size_t first, size_t lanes) {
    for (size_t lane = 0; lane < lanes; lane += kLanes) {
      for (size_t i = 0; i < g.depth; i += kLanes) {
        Vec block[kLanes];
        for (size_t o = 0; o < kLanes; ++o) {
          const size_t channel = first + lane + o;
          block[o] =
              channel < g.out ? LoadPart(weight + channel * g.depth + i, g.depth - i) : Vec{};
        }
        Transpose(block);
        for (size_t j = 0; j < std::min<size_t>(kLanes, g.depth - i); ++j) {
          const size_t k = (i + j) % g.taps * g.channels + (i + j) / g.taps;
          Store(packed + first * g.depth + k * lanes + lane, block[j]);
        }
      }
    }
  });
}

// [out][channels][taps] to [panel of depth][out][lanes of the panel].
void PackBackward(const Geometry& g, const Scratch& s, const float* weight) {
  for (size_t o = 0; o < g.out; ++o) {
    const float* kernels = weight + o * g.depth;
    if (g.taps > 1) {
      TransposeMatrix(g.channels, g.taps, kernels, s.kernels);
      kernels = s.kernels;
    }
    ForEachPanel(g.depth, [&](size_t first, size_t lanes) {
      float* to = s.weight + first * g.out + o * lanes;
      const size_t count = std::min(lanes, g.depth - first);
      std::copy_n(kernels + first, count, to);
      std::fill(to + count, to + lanes, 0.0f);
    });
  }
}

void UnpackGradients(const Geometry& g, const float* dweight, float* to) {
  for (size_t o = 0; o < g.out; ++o, dweight += g.gradient_row, to += g.depth) {
    if (g.taps == 1) {
      std::copy_n(dweight, g.depth, to);
    } else {
      TransposeMatrix(g.taps, g.channels, dweight, to);
    }
  }
}

// ------------------------------------------------------------------------------------- products

// c[rows, cols] = a[rows, depth] · b[depth, cols], b in panels.
struct Product {
  size_t rows, cols, depth;
  const float* a;
  size_t a_row;
  const float* b;
  float* c;
  size_t c_row;
};

void Multiply(const Product& m) {
  ForEachPanel(m.cols, [&](size_t first, size_t lanes) {
    for (size_t k = 0; k < m.depth; k += kDepthBlock) {
      ForEvenPieces(m.rows, kTileRows, [&](size_t row, size_t rows) {
        ComputeGemmTile(rows, lanes / kLanes,
                        {.depth = std::min(kDepthBlock, m.depth - k),
                         .a = m.a + row * m.a_row + k,
                         .a_row_stride = m.a_row,
                         .a_col_stride = 1,
                         .b = m.b + first * m.depth + k * lanes,
                         .b_row_stride = lanes,
                         .c = m.c + row * m.c_row + first,
                         .c_row_stride = m.c_row,
                         .cols = std::min(lanes, m.cols - first),
                         .continues = k > 0});
      });
    }
  });
}

// dweight (+)= dyᵀ · rows
void AddGradients(const Geometry& g, const Scratch& s, const float* dy, const float* rows,
                  size_t pixels, bool continues) {
  ForEachPanel(g.depth, [&](size_t first, size_t lanes) {
    ForEvenPieces(g.out, kTileRows, [&](size_t o, size_t tile_rows) {
      ComputeGemmTile(tile_rows, lanes / kLanes,
                      {.depth = pixels,
                       .a = dy + o,
                       .a_row_stride = 1,
                       .a_col_stride = g.out,
                       .b = rows + first,
                       .b_row_stride = g.row,
                       .c = s.dweight + o * g.gradient_row + first,
                       .c_row_stride = g.gradient_row,
                       .cols = lanes,
                       .continues = continues});
    });
  });
}

// Calls f(first, count) for each block of pixels.
template <class F>
void ForEachBlock(const Geometry& g, size_t sample_count, F&& f) {
  ForEvenPieces(sample_count * g.to.height * g.to.width, g.block_pixels, f);
}

}  // namespace

size_t MatrixScratchBytes(const Conv2dSpec& spec) {
  ScratchCarver counter;
  Carve(Geometry(spec), counter);
  return counter.used_bytes();
}

void MatrixForward(const Conv2dSpec& spec, const PlainForward& args, std::span<std::byte> scratch) {
  const Geometry g(spec);
  ScratchCarver carver(scratch);
  const Scratch s = Carve(g, carver);
  PackForward(g, args.weight, s.weight);
  ForEachBlock(g, args.sample_count, [&](size_t first, size_t count) {
    Multiply({.rows = count,
              .cols = g.out,
              .depth = g.depth,
              .a = Rows(g, s, args.x, first, count),
              .a_row = g.row,
              .b = s.weight,
              .c = args.y + first * g.out,
              .c_row = g.out});
  });
}

void MatrixBackward(const Conv2dSpec& spec, const PlainBackward& args,
                    std::span<std::byte> scratch) {
  const Geometry g(spec);
  ScratchCarver carver(scratch);
  const Scratch s = Carve(g, carver);
  auto add_gradients = [&](size_t first, size_t count) {
    AddGradients(g, s, args.dy + first * g.out, Rows(g, s, args.x, first, count), count, first > 0);
  };
  auto compute_data = [&](size_t first, size_t count) {
    Multiply({.rows = count,
              .cols = g.depth,
              .depth = g.out,
              .a = args.dy + first * g.out,
              .a_row = g.out,
              .b = s.weight,
              .c = g.is_pixels ? args.dx + first * g.row : s.rows,
              .c_row = g.row});
    if (!g.is_pixels) AddRows(g, s, first, count, args.dx);
  };
  if (args.dx != nullptr) {
    PackBackward(g, s, args.weight);
    if (!g.is_pixels) std::fill_n(args.dx, args.sample_count * spec.input.size(), 0.0f);
  }
  const bool is_fused = args.dx != nullptr && g.has_few_weights;
  ForEachBlock(g, args.sample_count, [&](size_t first, size_t count) {
    add_gradients(first, count);
    if (is_fused) compute_data(first, count);
  });
  UnpackGradients(g, s.dweight, args.dweight);
  if (args.dx != nullptr && !is_fused) ForEachBlock(g, args.sample_count, compute_data);
}

}  // namespace pando::cpu
