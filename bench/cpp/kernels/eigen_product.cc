#include "bench/cpp/kernels/eigen_product.h"

#include <Eigen/Core>

#include "bench/cpp/kernels/fma_peak.h"

namespace pando::bench {

double EigenSeconds(const MatrixProduct& product) {
  // Rows are contiguous, as ours are.
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Matrix a = Matrix::Constant(product.rows, product.inner, 0.5f);
  const Matrix b = Matrix::Constant(product.inner, product.columns, 0.25f);
  Matrix c = Matrix::Zero(product.rows, product.columns);
  const double start = ThreadSeconds();
  for (int64_t i = 0; i < product.count; ++i) {
    c.noalias() = a * b;
    asm volatile("" ::: "memory");  // the compiler must not see that each product is the same
  }
  return ThreadSeconds() - start;
}

}  // namespace pando::bench
