#include "kernels/cpu/gemm.h"

namespace pando::cpu {
namespace {

template <size_t kVecs>
inline Vec LoadSum(const GemmPanel& t, const float* c, size_t v) {
  return t.cols >= kVecs * kLanes ? Load(c + v * kLanes)
                                  : LoadPart(c + v * kLanes, t.cols - v * kLanes);
}

template <size_t kRows, size_t kVecs>
void ComputeTile(const GemmPanel& t) {
  Vec sums[kRows][kVecs];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVecs; ++v) {
      sums[r][v] = t.continues ? LoadSum<kVecs>(t, t.c + r * t.c_row_stride, v) : Vec{};
    }
  }
  const float *a = t.a.data, *b = t.b.data;
  for (size_t k = 0; k < t.depth; ++k, a += t.a.col_stride, b += t.b.row_stride) {
    Vec columns[kVecs];
    for (size_t v = 0; v < kVecs; ++v) columns[v] = InRegister(Load(b + v * kLanes));
    for (size_t r = 0; r < kRows; ++r) {
      const Vec element = Broadcast(a[r * t.a.row_stride]);
      for (size_t v = 0; v < kVecs; ++v) sums[r][v] += element * columns[v];
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVecs; ++v) {
      StorePart(t.c + r * t.c_row_stride + v * kLanes, sums[r][v], t.cols - v * kLanes);
    }
  }
}

using TileFunction = void (*)(const GemmPanel&);

constexpr auto kComputeTile = MakeTable<kTileVecs>([]<size_t kVecs>() {  // [vecs − 1][rows − 1]
  return MakeTable<kTileRows>(
      []<size_t kRows>() -> TileFunction { return ComputeTile<kRows + 1, kVecs + 1>; });
});

struct Block {  // a part of the depth and of the columns
  size_t first_depth, depth;
  size_t first_col, cols;
};

inline void CopyRow(const float* from, size_t cols, size_t lanes, float* to) {
  for (size_t c = 0; c < lanes; c += kLanes) Store(to + c, LoadPart(from + c, cols - c));
}

inline void GatherRow(const float* from, size_t stride, size_t cols, size_t lanes, float* to) {
  for (size_t c = 0; c < cols; ++c) to[c] = from[c * stride];
  std::fill(to + cols, to + lanes, 0.0f);
}

// Packs the block into [panel][depth][columns of the panel]; columns past the last are zero. It
// works row by row, so that a large b is read in runs as wide as the block.
void Pack(const GemmOperand& b, const Block& block, float* packed) {
  const float* row = b.data + block.first_depth * b.row_stride + block.first_col * b.col_stride;
  for (size_t k = 0; k < block.depth; ++k, row += b.row_stride) {
    ForEachPanel(block.cols, [&](size_t col, size_t lanes) {
      float* to = packed + col * block.depth + k * lanes;
      const float* from = row + col * b.col_stride;
      const size_t cols = std::min(lanes, block.cols - col);
      b.col_stride == 1 ? CopyRow(from, cols, lanes, to)
                        : GatherRow(from, b.col_stride, cols, lanes, to);
    });
  }
}

// Computes all rows of the block: a few rows of a at a time, along the whole width of the block.
void ComputeBlock(const Gemm& g, const Block& block, const float* packed) {
  ForEvenPieces(g.rows, kTileRows, [&](size_t row, size_t rows) {
    const float* a = g.a.data + row * g.a.row_stride + block.first_depth * g.a.col_stride;
    ForEachPanel(block.cols, [&](size_t col, size_t lanes) {
      kComputeTile[lanes / kLanes - 1][rows - 1]({.depth = block.depth,
                                                  .a = {a, g.a.row_stride, g.a.col_stride},
                                                  .b = {packed + col * block.depth, lanes},
                                                  .c = g.c + row * g.cols + block.first_col + col,
                                                  .c_row_stride = g.cols,
                                                  .cols = std::min(lanes, block.cols - col),
                                                  .continues = block.first_depth > 0});
    });
  });
}

}  // namespace

void MultiplyPanel(const GemmPanel& panel) {
  ForEvenPieces(panel.rows, kTileRows, [&](size_t row, size_t rows) {
    GemmPanel tile = panel;
    tile.a.data += row * panel.a.row_stride;
    tile.c += row * panel.c_row_stride;
    kComputeTile[panel.vecs - 1][rows - 1](tile);
  });
}

void Multiply(const Gemm& g, float* scratch) {
  const size_t col_block = kGemmScratchFloats / g.depth_block;
  for (size_t col = 0; col < g.cols; col += col_block) {
    for (size_t k = 0; k < g.depth; k += g.depth_block) {
      const Block block{k, std::min(g.depth_block, g.depth - k), col,
                        std::min(col_block, g.cols - col)};
      Pack(g.b, block, scratch);
      ComputeBlock(g, block, scratch);
    }
  }
}

}  // namespace pando::cpu
