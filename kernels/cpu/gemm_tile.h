// The inner loop of every matrix product here: a tile of the result in registers, along the depth.
#pragma once

#include <cstddef>

#include "kernels/cpu/simd.h"

namespace pando::cpu {

// Sums of a tile, in registers: 6 x 4 sums + 4 of b + 1 broadcast of a within 32 registers, 4 x 3 +
// 3 + 1 within 16.
inline constexpr size_t kTileRows = kRegisters == 32 ? 6 : 4;
inline constexpr size_t kTileVecs = kRegisters == 32 ? 4 : 3;

// c[row, col] (+)= Σ over depth of a[row, k] · b[k, col], in order of k: one chain of fused
// multiply-adds per element, for any size of the tile.
struct GemmTile {
  size_t depth;
  const float* a;
  size_t a_row_stride, a_col_stride;
  const float* b;  // whole vectors are read
  size_t b_row_stride;
  float* c;
  size_t c_row_stride;
  size_t cols;     // existing ones: the others are not written
  bool continues;  // c has the sums of the depth before
};

// REQUIRES: 1 <= rows <= kTileRows, 1 <= vecs <= kTileVecs.
void ComputeGemmTile(size_t rows, size_t vecs, const GemmTile& tile);

}  // namespace pando::cpu
