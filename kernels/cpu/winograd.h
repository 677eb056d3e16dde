// The transforms of Winograd's F(4x4, 3x3): 4x4 outputs of a 3x3 convolution from 6x6 inputs with
// 36 multiplications instead of 144. With input tile d, kernel g and output tile y:
//   y = Aᵀ [ (G g Gᵀ) ⊙ (Bᵀ d B) ] A      and, the adjoint of it in g:
//   dg = Gᵀ [ (A dy Aᵀ) ⊙ (Bᵀ d B) ] G
// The polynomials are evaluated at 0, ±5/8, ±3/2 and infinity. Their powers stay nearer to 1 than
// those of the usual 0, ±1, ±2: a third of the rounding error.
#pragma once

#include "kernels/cpu/simd.h"

namespace pando::cpu::winograd {

inline constexpr size_t kTile = 6, kOut = 4, kKernel = 3, kPoints = kTile * kTile;

inline constexpr float kA = 5.0f / 8, kB = 3.0f / 2;  // exact, and so are their squares
inline constexpr float kA2 = kA * kA, kB2 = kB * kB, kA3 = kA2 * kA, kB3 = kB2 * kB;
// The inverse products of a point's distances from the others.
inline constexpr float kScale0 = 1 / (kA2 * kB2);
inline constexpr float kScaleA = 1 / (2 * kA2 * (kA2 - kB2));
inline constexpr float kScaleB = 1 / (2 * kB2 * (kB2 - kA2));

template <size_t kSize>
struct Row {
  Vec v[kSize];
};

// Bᵀ d
inline Row<kTile> TransformInput(const Vec (&d)[kTile]) {
  const Vec even_a = d[4] - kB2 * d[2], odd_a = kA * (d[3] - kB2 * d[1]);
  const Vec even_b = d[4] - kA2 * d[2], odd_b = kB * (d[3] - kA2 * d[1]);
  return {{kA2 * kB2 * d[0] - (kA2 + kB2) * d[2] + d[4], even_a + odd_a, even_a - odd_a,
           even_b + odd_b, even_b - odd_b, kA2 * kB2 * d[1] - (kA2 + kB2) * d[3] + d[5]}};
}

// Aᵀ m
inline Row<kOut> TransformOutput(const Vec (&m)[kTile]) {
  const Vec sum_a = m[1] + m[2], difference_a = m[1] - m[2];
  const Vec sum_b = m[3] + m[4], difference_b = m[3] - m[4];
  return {{m[0] + sum_a + sum_b, kA * difference_a + kB * difference_b, kA2 * sum_a + kB2 * sum_b,
           kA3 * difference_a + kB3 * difference_b + m[5]}};
}

// A dy
inline Row<kTile> TransformOutputGradient(const Vec (&y)[kOut]) {
  const Vec even_a = y[0] + kA2 * y[2], odd_a = kA * y[1] + kA3 * y[3];
  const Vec even_b = y[0] + kB2 * y[2], odd_b = kB * y[1] + kB3 * y[3];
  return {{y[0], even_a + odd_a, even_a - odd_a, even_b + odd_b, even_b - odd_b, y[3]}};
}

// G g
inline Row<kTile> TransformKernel(const Vec (&g)[kKernel]) {
  const Vec even_a = kScaleA * (g[0] + kA2 * g[2]), odd_a = kScaleA * kA * g[1];
  const Vec even_b = kScaleB * (g[0] + kB2 * g[2]), odd_b = kScaleB * kB * g[1];
  return {{kScale0 * g[0], even_a + odd_a, even_a - odd_a, even_b + odd_b, even_b - odd_b, g[2]}};
}

// Gᵀ m
inline Row<kKernel> TransformKernelGradient(const Vec (&m)[kTile]) {
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

}  // namespace pando::cpu::winograd
