// Convolutions of many channels as matrix products. Each output pixel has a row of `depth` floats,
// the pixels under its kernel: [kernel · kernel][channels], zeros in the padding.
//   forward:          y[pixels, out] = rows[pixels, depth] · weight[depth, out]
//   weight gradient:  dweight[out, depth] = dyᵀ[out, pixels] · rows[pixels, depth]
//   data gradient:    drows[pixels, depth] = dy[pixels, out] · weight[out, depth], added to dx
// Pixels of all samples form one sequence, which is processed in blocks. With a 1x1 kernel of
// stride 1 the rows are the pixels themselves and nothing is copied.
#include <algorithm>

#include "kernels/cpu/conv_paths.h"
#include "kernels/cpu/gemm.h"
#include "kernels/scratch_carver.h"

namespace pando::cpu {
namespace {

// With few weights, a block's rows and outputs stay in the L2 cache from one product to the next.
// Otherwise blocks are larger, so that weights are read less often, and products run one after
// another.
constexpr size_t kFewWeights = 128 << 10;
constexpr size_t kFewWeightsBlockFloats = 96 << 10;
constexpr size_t kBlockFloats = 256 << 10;
constexpr size_t kBlockPixelsMin = 64;
constexpr size_t kDepthBlock = 512;  // 128 KB of a panel of weights
// Many weights are processed in pieces: a number of channels along a product's depth, and a number
// of rows of gradients. If the pixels are so few that they are one block, moving weights to and
// from memory takes most of the time. Then a piece is packed, or its gradients are unpacked, when
// it is needed, and it stays in the L2 cache meanwhile: 295 KB for a 3x3 kernel.
constexpr size_t kPieceChannels = 128;
constexpr size_t kPieceRows = 4 * kTileRows;

struct Geometry {
  const Conv2dSpec& spec;
  SampleShape to = spec.conv_output();
  size_t channels = spec.input.channels, out = spec.out_channels;
  size_t taps = size_t{spec.kernel} * spec.kernel, depth = taps * channels;
  bool is_pixels = spec.kernel == 1 && spec.stride == 1 && spec.padding == 0;
  // The floats from one pixel's row to the next. In copies this is never a power of two.
  size_t row = is_pixels ? channels : RoundUpToLanes(depth) + kLanes;
  size_t gradient_row = RoundUpToLanes(depth);
  bool has_few_weights = depth * out <= kFewWeights;
  size_t block_pixels = std::max(
      kBlockPixelsMin, has_few_weights ? kFewWeightsBlockFloats / (row + out) : kBlockFloats / row);

  size_t PixelCount(size_t sample_count) const { return sample_count * to.height * to.width; }
  bool IsOneBlock(size_t sample_count) const { return PixelCount(sample_count) <= block_pixels; }
};

struct Scratch {
  const Geometry& g;
  ScratchCarver carver = {};
  // [pixels of a block][row]
  float* rows = carver.Take<float>(g.is_pixels ? 0 : g.block_pixels * g.row + kSlackElements);
  // The packed weights for one of the products: all, or a piece.
  float* weight = carver.Take<float>(std::max(
      {g.depth * RoundUpToLanes(g.out), g.out* RoundUpToLanes(g.depth),
       g.has_few_weights ? 0 : g.taps* std::min(kPieceChannels, g.out) * kTileVecs* kLanes}));
  float* dweight = carver.Take<float>(g.out * g.gradient_row);  // of all rows, or a piece's
  float* kernels = carver.Take<float>(g.depth);                 // for one output channel
  // For a block and some output channels: [pixels of a block][kPieceRows].
  float* dy = carver.Take<float>(g.has_few_weights ? 0 : g.block_pixels * kPieceRows);
};

// ----------------------------------------------------------------------------------------- rows

// A part of a pixel's row that is contiguous in the images, or in the padding.
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

// Returns the rows of pixels [first, first + count): copies, or the images themselves.
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

// Some of the weights with all their taps: a panel's lanes and a part of its product's depth.
struct Piece {
  size_t lane, lanes;   // output channels forward, input channels backward; may exceed the last
  size_t first, count;  // of the other channels
};

// Packs [out][channels][taps] into [taps][count of the channels][lanes of out].
void PackForward(const Geometry& g, const float* weight, const Piece& p, float* packed) {
  for (size_t lane = 0; lane < p.lanes; lane += kLanes) {
    const size_t out = p.lane + lane;
    size_t tap = 0, channel = 0;
    for (size_t i = 0; i < p.count * g.taps; i += kLanes) {
      const size_t at = out * g.depth + p.first * g.taps + i;
      Vec block[kLanes];
      LoadTransposed(weight + at, g.depth, g.out - out, g.out * g.depth - at, block);
      for (size_t j = 0; j < std::min<size_t>(kLanes, p.count * g.taps - i); ++j) {
        Store(packed + (tap * p.count + channel) * p.lanes + lane, block[j]);
        if (++tap < g.taps) continue;
        tap = 0;
        ++channel;
      }
    }
  }
}

// Packs [out][channels][taps] into [taps][count of out][lanes of the channels].
void PackBackwardPiece(const Geometry& g, const float* weight, const Piece& p, float* kernels,
                       float* packed) {
  const size_t channels = std::min(p.lanes, g.channels - p.lane);
  for (size_t o = 0; o < p.count; ++o) {
    const float* from = weight + (p.first + o) * g.depth + p.lane * g.taps;
    if (g.taps > 1) {
      TransposeMatrix(channels, g.taps, from, kernels);
      from = kernels;
    }
    for (size_t tap = 0; tap < g.taps; ++tap) {
      float* to = packed + (tap * p.count + o) * p.lanes;
      std::copy_n(from + tap * channels, channels, to);
      std::fill(to + channels, to + p.lanes, 0.0f);
    }
  }
}

// Packs [out][channels][taps] into [panel of depth][out][lanes of the panel].
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

// Unpacks output channels [first, first + count).
void UnpackGradients(const Geometry& g, const float* dweight, size_t first, size_t count,
                     float* to) {
  for (size_t o = 0; o < count; ++o, dweight += g.gradient_row) {
    float* kernels = to + (first + o) * g.depth;
    if (g.taps == 1) {
      std::copy_n(dweight, g.depth, kernels);
    } else {
      TransposeMatrix(g.taps, g.channels, dweight, kernels);
    }
  }
}

// ------------------------------------------------------------------------------------- products

// Computes c = a · b for all columns, with b in panels.
void MultiplyPacked(const GemmPanel& all) {
  ForEachPanel(all.cols, [&](size_t first, size_t lanes) {
    for (size_t k = 0; k < all.depth; k += kDepthBlock) {
      MultiplyPanel({.rows = all.rows,
                     .vecs = lanes / kLanes,
                     .depth = std::min(kDepthBlock, all.depth - k),
                     .a = {all.a.data + k, all.a.row_stride},
                     .b = {all.b.data + first * all.depth + k * lanes, lanes},
                     .c = all.c + first,
                     .c_row_stride = all.c_row_stride,
                     .cols = std::min(lanes, all.cols - first),
                     .continues = k > 0});
    }
  });
}

// Computes dweight (+)= dyᵀ · rows for all columns, a block of pixels and some output channels.
void AddGradients(const Geometry& g, const GemmPanel& all) {
  ForEachPanel(g.depth, [&](size_t lane, size_t lanes) {
    GemmPanel panel = all;
    panel.vecs = lanes / kLanes;
    panel.b.data += lane;
    panel.c += lane;
    panel.cols = lanes;
    MultiplyPanel(panel);
  });
}

// Does the same for a piece, after it has copied the piece's dy together. In the original array the
// floats of one channel compete for few lines of the L1 cache.
void AddGradientsOfPiece(const Geometry& g, const Scratch& s, GemmPanel all) {
  for (size_t i = 0; i < all.depth; ++i)
    std::copy_n(all.a.data + i * all.a.col_stride, all.rows, s.dy + i * all.rows);
  all.a = {s.dy, 1, all.rows};
  AddGradients(g, all);
}

// Calls f(first, count) for each block of pixels.
template <class F>
void ForEachBlock(const Geometry& g, size_t sample_count, F&& f) {
  ForEvenPieces(g.PixelCount(sample_count), g.block_pixels, f);
}

// --------------------------------------------------------------------------- products in pieces

// Calls f(piece) for each panel of `lane_count` channels and each part of `depth_count`.
template <class F>
void ForEachPiece(size_t lane_count, size_t depth_count, F&& f) {
  ForEachPanel(lane_count, [&](size_t lane, size_t lanes) {
    ForEvenPieces(depth_count, kPieceChannels, [&](size_t first, size_t count) {
      f(Piece{lane, lanes, first, count});
    });
  });
}

// Adds in the same order for one block or many, so that a sample's output does not depend on the
// other samples.
void ForwardInPieces(const Geometry& g, const Scratch& s, const PlainForward& args) {
  const bool is_one_block = g.IsOneBlock(args.sample_count);
  const auto packed = [&](const Piece& piece) {
    const size_t before = piece.lane * g.depth + piece.first * g.taps * piece.lanes;
    return s.weight + (is_one_block ? 0 : before);
  };
  const auto pack = [&](const Piece& piece) { PackForward(g, args.weight, piece, packed(piece)); };
  if (!is_one_block) ForEachPiece(g.out, g.channels, pack);
  ForEachBlock(g, args.sample_count, [&](size_t first, size_t count) {
    const float* rows = Rows(g, s, args.x, first, count);
    ForEachPiece(g.out, g.channels, [&](const Piece& piece) {
      if (is_one_block) pack(piece);
      for (size_t tap = 0; tap < g.taps; ++tap) {
        MultiplyPanel({.rows = count,
                       .vecs = piece.lanes / kLanes,
                       .depth = piece.count,
                       .a = {rows + tap * g.channels + piece.first, g.row},
                       .b = {packed(piece) + tap * piece.count * piece.lanes, piece.lanes},
                       .c = args.y + first * g.out + piece.lane,
                       .c_row_stride = g.out,
                       .cols = std::min(piece.lanes, g.out - piece.lane),
                       .continues = piece.first > 0 || tap > 0});
      }
    });
  });
}

void DataGradientInPieces(const Geometry& g, const Scratch& s, const PlainBackward& args) {
  const size_t pixels = g.PixelCount(args.sample_count);
  float* const drows = g.is_pixels ? args.dx : s.rows;
  ForEachPiece(g.channels, g.out, [&](const Piece& piece) {
    PackBackwardPiece(g, args.weight, piece, s.kernels, s.weight);
    for (size_t tap = 0; tap < g.taps; ++tap) {
      MultiplyPanel({.rows = pixels,
                     .vecs = piece.lanes / kLanes,
                     .depth = piece.count,
                     .a = {args.dy + piece.first, g.out},
                     .b = {s.weight + tap * piece.count * piece.lanes, piece.lanes},
                     .c = drows + tap * g.channels + piece.lane,
                     .c_row_stride = g.row,
                     .cols = std::min(piece.lanes, g.channels - piece.lane),
                     .continues = piece.first > 0});
    }
  });
  if (g.is_pixels) return;
  std::fill_n(args.dx, args.sample_count * g.spec.input.size(), 0.0f);
  AddRows(g, s, 0, pixels, args.dx);
}

void MatrixForward(const Conv2dSpec& spec, const PlainForward& args, std::span<std::byte> scratch) {
  const Geometry g{spec};
  const Scratch s{g, ScratchCarver(scratch)};
  if (!g.has_few_weights) return ForwardInPieces(g, s, args);
  ForEachPanel(g.out, [&](size_t lane, size_t lanes) {
    PackForward(g, args.weight, {lane, lanes, 0, g.channels}, s.weight + lane * g.depth);
  });
  ForEachBlock(g, args.sample_count, [&](size_t first, size_t count) {
    MultiplyPacked({.rows = count,
                    .depth = g.depth,
                    .a = {Rows(g, s, args.x, first, count), g.row},
                    .b = {s.weight},
                    .c = args.y + first * g.out,
                    .c_row_stride = g.out,
                    .cols = g.out});
  });
}

void MatrixBackward(const Conv2dSpec& spec, const PlainBackward& args,
                    std::span<std::byte> scratch) {
  const Geometry g{spec};
  const Scratch s{g, ScratchCarver(scratch)};
  const bool is_in_pieces = !g.has_few_weights && g.IsOneBlock(args.sample_count);
  auto add_gradients = [&](size_t first, size_t count) {
    const GemmPanel all{.rows = g.out,
                        .depth = count,
                        .a = {args.dy + first * g.out, 1, g.out},
                        .b = {Rows(g, s, args.x, first, count), g.row},
                        .c = s.dweight,
                        .c_row_stride = g.gradient_row,
                        .continues = first > 0};
    if (g.has_few_weights) return AddGradients(g, all);
    ForEvenPieces(g.out, kPieceRows, [&](size_t o, size_t outs) {
      GemmPanel piece = all;
      piece.rows = outs;
      piece.a.data += o;
      if (!is_in_pieces) piece.c += o * g.gradient_row;
      AddGradientsOfPiece(g, s, piece);
      if (is_in_pieces) UnpackGradients(g, s.dweight, o, outs, args.dweight);
    });
  };
  if (is_in_pieces) {
    add_gradients(0, g.PixelCount(args.sample_count));
    if (args.dx != nullptr) DataGradientInPieces(g, s, args);
    return;
  }
  auto compute_data = [&](size_t first, size_t count) {
    MultiplyPacked({.rows = count,
                    .depth = g.out,
                    .a = {args.dy + first * g.out, g.out},
                    .b = {s.weight},
                    .c = g.is_pixels ? args.dx + first * g.row : s.rows,
                    .c_row_stride = g.row,
                    .cols = g.depth});
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
  UnpackGradients(g, s.dweight, 0, g.out, args.dweight);
  if (args.dx != nullptr && !is_fused) ForEachBlock(g, args.sample_count, compute_data);
}

}  // namespace

const PlainPath kMatrixPath{.forward = MatrixForward,
                            .backward = MatrixBackward,
                            .scratch_bytes = [](const Conv2dSpec& spec, size_t) {
                              const Geometry g{spec};
                              return Scratch{g}.carver.used_bytes();
                            }};

}  // namespace pando::cpu
