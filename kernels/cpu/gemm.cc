#include "kernels/cpu/gemm.h"

#include <Eigen/Core>
#include <mutex>

namespace pando::cpu {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMap = Eigen::Map<const Matrix>;
using Map = Eigen::Map<Matrix>;

// P35: the blocking, and with it the order of every sum, must not depend on the machine's caches.
constexpr std::ptrdiff_t kL1Bytes = 32 << 10, kL2Bytes = 512 << 10, kL3Bytes = 4 << 20;

void FixBlocking() {
  static std::once_flag once;  // Eigen keeps the sizes in a global of its own
  std::call_once(once, [] { Eigen::setCpuCacheSizes(kL1Bytes, kL2Bytes, kL3Bytes); });
}

ConstMap In(const float* p, size_t rows, size_t cols) {
  return ConstMap(p, static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(cols));
}
Map Out(float* p, GemmSize size) {
  return Map(p, static_cast<Eigen::Index>(size.rows), static_cast<Eigen::Index>(size.cols));
}

}  // namespace

void GemmNT(GemmSize size, const float* a, const float* b, float* c) {
  FixBlocking();
  Out(c, size).noalias() = In(a, size.rows, size.depth) * In(b, size.cols, size.depth).transpose();
}

void GemmNN(GemmSize size, const float* a, const float* b, float* c) {
  FixBlocking();
  Out(c, size).noalias() = In(a, size.rows, size.depth) * In(b, size.depth, size.cols);
}

void GemmTN(GemmSize size, const float* a, const float* b, float* c) {
  FixBlocking();
  Out(c, size).noalias() = In(a, size.depth, size.rows).transpose() * In(b, size.depth, size.cols);
}

}  // namespace pando::cpu
