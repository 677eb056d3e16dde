// Matrix products of row-major matrices, on the calling thread. Eigen stays behind this header.
#pragma once

#include <cstddef>

namespace pando::cpu {

struct GemmSize {
  size_t rows;   // of c
  size_t cols;   // of c
  size_t depth;  // terms of each sum
};

void GemmNT(GemmSize size, const float* a, const float* b, float* c);  // c = a · bᵀ, b: [cols, depth]
void GemmNN(GemmSize size, const float* a, const float* b, float* c);  // c = a · b
void GemmTN(GemmSize size, const float* a, const float* b, float* c);  // c = aᵀ · b, a: [depth, rows]

}  // namespace pando::cpu
