// MatrixLibrary: cuBLASLt's matrix products, with bias and relu. The algorithm is cuBLASLt's first
// choice among those that add in a fixed order (P39). linear.cu uses it. Threads: one at a time.
// Owns: its handle, plans and a workspace.
#pragma once

#include <cuda_runtime.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/result.h"
#include "kernels/opened_gpu.h"

namespace pando::cuda {

// c = a · b, all row-major: a [rows, depth], b [depth, cols], c [rows, cols]. a or b may be
// transposed. a and b have elements.
struct Product {
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint32_t depth = 0;
  bool a_transposed = false;  // stored as [depth, rows]
  bool b_transposed = false;  // stored as [cols, depth]
  bool is_float = false;      // c has floats, otherwise elements
  bool has_bias = false;      // elements, [cols], added to each row
  bool has_relu = false;      // then negative values become 0
  auto operator<=>(const Product&) const = default;
};

struct ProductArrays {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  void* c = nullptr;
};

class MatrixLibrary {
 public:
  struct Impl;
  explicit MatrixLibrary(std::unique_ptr<Impl> impl);  // made by Open
  // kNotFound: cuBLASLt is missing, or has another version. `stream` outlives the library.
  static Result<std::unique_ptr<MatrixLibrary>> Open(const CudaOptions& options,
                                                     cudaStream_t stream);
  static bool IsThere();  // whether cuBLASLt can be loaded
  ~MatrixLibrary();
  MatrixLibrary(const MatrixLibrary&) = delete;
  MatrixLibrary& operator=(const MatrixLibrary&) = delete;

  size_t version() const;  // major · 10000 + minor · 100 + patch

  // REQUIRES: the arrays are aligned to 16 bytes.
  void Run(const Product& product, const ProductArrays& arrays);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando::cuda
