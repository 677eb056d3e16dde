// Transposes in registers: between PyTorch's layout of weights and those of the kernels here.
#pragma once

#include <algorithm>

#include "kernels/cpu/simd.h"

namespace pando::cpu {

// rows[i][j] = rows[j][i]: exchanges quarters of ever smaller squares.
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

// The transpose of one vector from each of `rows` rows, which begin `stride` floats apart; zeros
// for rows that do not exist. `rest` floats remain from the first row's vector on.
inline void LoadTransposed(const float* from, size_t stride, size_t rows, size_t rest,
                           Vec (&block)[kLanes]) {
  for (size_t i = 0; i < kLanes; ++i) {
    block[i] = i < rows ? LoadPart(from + i * stride, rest - i * stride) : Vec{};
  }
  Transpose(block);
}

// to[cols, rows] = from[rows, cols]ᵀ for few rows. The result is put together a few columns at a
// time and stored as whole vectors, because many partial stores would wait for its lines.
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
