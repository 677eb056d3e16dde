// Matrix product on the calling thread. Designed for a layer's weights, which are read once from
// memory without copying, and for the few dozen samples of a micro-batch.
#pragma once

#include <cstddef>

namespace pando::cpu {

struct GemmOperand {  // a matrix with any strides
  const float* data = nullptr;
  size_t row_stride = 0;
  size_t col_stride = 1;
};

// c[rows, cols] = a[rows, depth] · b[depth, cols]. Each sum goes through depth in order, as one
// chain of fused multiply-adds for any blocking. So an element depends on its row of a and column
// of b alone.
struct Gemm {
  size_t rows = 0, cols = 0, depth = 0;
  GemmOperand a;
  GemmOperand b;
  float* c = nullptr;  // [rows, cols]
  // Depth of a block: large if a is the large matrix, so that its rows are read in long runs;
  // smaller if b is, so that its runs are wide.
  size_t depth_block = 128;
};

// Blocks of b are copied here, vector by vector, so that no two rows share a line of the cache.
inline constexpr size_t kGemmScratchFloats = 64 << 10;  // 256 KB: half of a typical second cache

// REQUIRES: scratch has kGemmScratchFloats, aligned to 64 bytes.
void Multiply(const Gemm& gemm, float* scratch);

}  // namespace pando::cpu
