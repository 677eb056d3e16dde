#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cpu/simd.h"

namespace pando::cpu {
namespace {

constexpr size_t kTileRows = 4;
constexpr size_t kTileVecs = kRegisters == 32 ? 5 : 3;  // 4 x 3 sums + 3 of b + 1 broadcast of a

struct Block {  // of the depth and of the columns
  size_t first_depth, depth;
  size_t first_col, cols;
};

// Calls f(first column, columns that exist, vectors) for each panel of the block, a tile wide.
template <class F>
void ForEachPanel(const Block& block, F&& f) {
  ForEvenPieces(RoundUpToLanes(block.cols) / kLanes, kTileVecs, [&](size_t vec, size_t vecs) {
    const size_t col = vec * kLanes;
    f(col, std::min(vecs * kLanes, block.cols - col), vecs);
  });
}

inline void CopyRow(const float* from, size_t cols, size_t vecs, float* to) {
  for (size_t v = 0; v < vecs; ++v) {
    Store(to + v * kLanes, LoadPart(from + v * kLanes, cols - v * kLanes));
  }
}

inline void GatherRow(const float* from, size_t stride, size_t cols, size_t vecs, float* to) {
  for (size_t c = 0; c < cols; ++c) to[c] = from[c * stride];
  std::fill(to + cols, to + vecs * kLanes, 0.0f);
}

// To [panel][depth][columns of the panel]; columns past the last are zero. Row by row, so that a
// large b is read in runs as wide as the block.
void Pack(const GemmOperand& b, const Block& block, float* packed) {
  const float* row = b.data + block.first_depth * b.row_stride + block.first_col * b.col_stride;
  for (size_t k = 0; k < block.depth; ++k, row += b.row_stride) {
    ForEachPanel(block, [&](size_t col, size_t cols, size_t vecs) {
      float* to = packed + col * block.depth + k * vecs * kLanes;
      const float* from = row + col * b.col_stride;
      b.col_stride == 1 ? CopyRow(from, cols, vecs, to)
                        : GatherRow(from, b.col_stride, cols, vecs, to);
    });
  }
}

struct Tile {
  size_t depth;
  const float* a;
  size_t a_row_stride, a_col_stride;
  const float* b;  // packed
  float* c;
  size_t c_row_stride;
  size_t cols;     // that exist
  bool continues;  // c holds the sums of the depth before
};

template <size_t kRows, size_t kVecs>
void ComputeTile(const Tile& t) {
  Vec sums[kRows][kVecs];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVecs; ++v) {
      const float* c = t.c + r * t.c_row_stride + v * kLanes;
      sums[r][v] = t.continues ? LoadPart(c, t.cols - v * kLanes) : Vec{};
    }
  }
  const float *a = t.a, *b = t.b;
  for (size_t k = 0; k < t.depth; ++k, a += t.a_col_stride, b += kVecs * kLanes) {
    Vec columns[kVecs];
    for (size_t v = 0; v < kVecs; ++v) columns[v] = InRegister(Load(b + v * kLanes));
    for (size_t r = 0; r < kRows; ++r) {
      const Vec element = Broadcast(a[r * t.a_row_stride]);
      for (size_t v = 0; v < kVecs; ++v) sums[r][v] += element * columns[v];
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVecs; ++v) {
      StorePart(t.c + r * t.c_row_stride + v * kLanes, sums[r][v], t.cols - v * kLanes);
    }
  }
}

using TileFunction = void (*)(const Tile&);

// [vecs − 1][rows − 1]
template <size_t... kIndex>
constexpr auto MakeTable(std::index_sequence<kIndex...>) {
  return std::array<std::array<TileFunction, kTileRows>, kTileVecs>{
      {{ComputeTile<1, kIndex + 1>, ComputeTile<2, kIndex + 1>, ComputeTile<3, kIndex + 1>,
        ComputeTile<4, kIndex + 1>}...}};
}

constexpr auto kComputeTile = MakeTable(std::make_index_sequence<kTileVecs>());

// All rows of the block: a few rows of a at a time, along the whole width of the block.
void ComputeBlock(const Gemm& g, const Block& block, const float* packed) {
  ForEvenPieces(g.rows, kTileRows, [&](size_t row, size_t rows) {
    ForEachPanel(block, [&](size_t col, size_t cols, size_t vecs) {
      kComputeTile[vecs - 1][rows - 1](
          {.depth = block.depth,
           .a = g.a.data + row * g.a.row_stride + block.first_depth * g.a.col_stride,
           .a_row_stride = g.a.row_stride,
           .a_col_stride = g.a.col_stride,
           .b = packed + col * block.depth,
           .c = g.c + row * g.cols + block.first_col + col,
           .c_row_stride = g.cols,
           .cols = cols,
           .continues = block.first_depth > 0});
    });
  });
}

}  // namespace

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
