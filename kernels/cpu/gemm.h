// Matrix products on the calling thread. MultiplyPanel is the inner loop of every product. Multiply
// is designed for a layer's weights, which are read once from memory without a copy, and for the
// few dozen samples of a micro-batch.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/simd.h"

namespace pando::cpu {

struct GemmOperand {  // a matrix with any strides
  const float* data = nullptr;
  size_t row_stride = 0;
  size_t col_stride = 1;
};

// A tile's sums stay in registers. With 32 registers they are 6 x 4 sums, beside 4 vectors of b and
// 1 broadcast of a. With 16 registers they are 4 x 3 sums, beside 3 vectors and 1 broadcast.
inline constexpr size_t kTileRows = kRegisters == 32 ? 6 : 4;
inline constexpr size_t kTileVecs = kRegisters == 32 ? 4 : 3;

// c[row, col] (+)= Σ over depth of a[row, k] · b[k, col], in order of k: one chain of fused
// multiply-adds per element, for any number of rows and columns. The columns are one tile wide.
struct GemmPanel {
  size_t rows = 0;
  size_t vecs = 0;  // of columns: 1 to kTileVecs
  size_t depth = 0;
  GemmOperand a;
  GemmOperand b;  // col_stride is 1; whole vectors are read
  float* c = nullptr;
  size_t c_row_stride = 0;
  size_t cols = 0;         // existing columns; others are not written
  bool continues = false;  // c has the sums of the previous depth
};
void MultiplyPanel(const GemmPanel& panel);

// Calls f(first column, columns) for each panel of a matrix's columns, in whole vectors.
template <class F>
void ForEachPanel(size_t cols, F&& f) {
  ForEvenPieces(RoundUpToLanes(cols) / kLanes, kTileVecs,
                [&](size_t vec, size_t vecs) { f(vec * kLanes, vecs * kLanes); });
}

// c[rows, cols] = a[rows, depth] · b[depth, cols]. Each sum goes through depth in order, as one
// chain of fused multiply-adds for any blocking. So an element depends on its row of a and column
// of b alone.
struct Gemm {
  size_t rows = 0, cols = 0, depth = 0;
  GemmOperand a;
  GemmOperand b;
  float* c = nullptr;  // [rows, cols]
  // The depth of a block. It is large if a is the large matrix, so that a's rows are read in long
  // runs. It is smaller if b is the large one, so that b's runs are wide.
  size_t depth_block = 128;
};

// Multiply copies blocks of b here, vector by vector, so that no two rows share a cache line.
inline constexpr size_t kGemmScratchFloats = 64 << 10;  // 256 KB: half of a typical L2 cache

// REQUIRES: scratch has kGemmScratchFloats, aligned to 64 bytes.
void Multiply(const Gemm& gemm, float* scratch);

// ---- transposes in registers, between PyTorch's layout of weights and those of the kernels here

// Transposes in place, rows[i][j] = rows[j][i]: exchanges quarters of ever smaller squares.
template <size_t kHalf = kLanes / 2>
inline void Transpose(Vec (&rows)[kLanes]) {
  IntVec upper, lower;
  for (int j = 0; j < kLanes; ++j) {
    const bool is_left = (j & kHalf) == 0;
    upper[j] = is_left ? j : kLanes + j - static_cast<int>(kHalf);
    lower[j] = is_left ? j + static_cast<int>(kHalf) : kLanes + j;
  }
  for (size_t i = 0; i < kLanes; ++i) {
    if ((i & kHalf) != 0) continue;
    const Vec a = rows[i], b = rows[i + kHalf];
    rows[i] = __builtin_shuffle(a, b, upper);
    rows[i + kHalf] = __builtin_shuffle(a, b, lower);
  }
  if constexpr (kHalf > 1) Transpose<kHalf / 2>(rows);
}

// Loads the transpose of one vector from each of `rows` rows, which begin `stride` floats apart;
// missing rows are zeros. `rest` floats may be read from `from` on.
inline void LoadTransposed(const float* from, size_t stride, size_t rows, size_t rest,
                           Vec (&block)[kLanes]) {
  for (size_t i = 0; i < kLanes; ++i) {
    block[i] = i < rows ? LoadPart(from + i * stride, rest - i * stride) : Vec{};
  }
  Transpose(block);
}

// to[cols, rows] = from[rows, cols]ᵀ for few rows. The result is put together a few columns at a
// time and stored as whole vectors, because many partial stores would wait for the cache lines.
// REQUIRES: rows <= kLanes.
inline void TransposeFewRows(size_t rows, size_t cols, const float* from, float* to) {
  for (size_t c = 0; c < cols; c += kLanes) {
    Vec block[kLanes];
    LoadTransposed(from + c, cols, rows, rows * cols - c, block);
    float together[kLanes * kLanes];
    for (size_t i = 0; i < kLanes; ++i) Store(together + i * rows, block[i]);
    const size_t count = std::min<size_t>(kLanes, cols - c) * rows;
    for (size_t i = 0; i < count; i += kLanes) {
      StorePart(to + c * rows + i, Load(together + i), count - i);
    }
  }
}

// to[cols, rows] = from[rows, cols]ᵀ
inline void TransposeMatrix(size_t rows, size_t cols, const float* from, float* to) {
  if (rows <= kLanes) return TransposeFewRows(rows, cols, from, to);
  for (size_t r = 0; r < rows; r += kLanes) {
    for (size_t c = 0; c < cols; c += kLanes) {
      const size_t at = r * cols + c;
      Vec block[kLanes];
      LoadTransposed(from + at, cols, rows - r, rows * cols - at, block);
      for (size_t i = 0; i < std::min<size_t>(kLanes, cols - c); ++i) {
        StorePart(to + (c + i) * rows + r, block[i], rows - r);
      }
    }
  }
}

}  // namespace pando::cpu
