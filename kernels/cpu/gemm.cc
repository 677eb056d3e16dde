#include "kernels/cpu/gemm.h"

#include <algorithm>

#include "kernels/cpu/gemm_tile.h"

namespace pando::cpu {
namespace {

struct Block {  // of the depth and of the columns
  size_t first_depth, depth;
  size_t first_col, cols;
};

// Calls f(first column, existing columns, vectors) for each panel of the block, one tile wide.
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

// All rows of the block: a few rows of a at a time, along the whole width of the block.
void ComputeBlock(const Gemm& g, const Block& block, const float* packed) {
  ForEvenPieces(g.rows, kTileRows, [&](size_t row, size_t rows) {
    ForEachPanel(block, [&](size_t col, size_t cols, size_t vecs) {
      ComputeGemmTile(rows, vecs,
                      {.depth = block.depth,
                       .a = g.a.data + row * g.a.row_stride + block.first_depth * g.a.col_stride,
                       .a_row_stride = g.a.row_stride,
                       .a_col_stride = g.a.col_stride,
                       .b = packed + col * block.depth,
                       .b_row_stride = vecs * kLanes,
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
