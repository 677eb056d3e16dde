// In place of NVIDIA's libraries: cuDNN has no engine for anything, so that kernels/cuda's own
// convolutions are tested, and products follow their definition.
#include <array>
#include <set>

#include "common/check.h"
#include "kernels/cuda/conv_library.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/matrix_library.h"

namespace pando::cuda {

struct ConvLibrary::Impl {};

Result<std::unique_ptr<ConvLibrary>> ConvLibrary::Open(const CudaOptions&, cudaStream_t) {
  return std::make_unique<ConvLibrary>(nullptr);
}
ConvLibrary::ConvLibrary(std::unique_ptr<Impl>) {}
ConvLibrary::~ConvLibrary() = default;
size_t ConvLibrary::version() const { return 0; }
bool ConvLibrary::IsThere() { return true; }
bool ConvLibrary::Prepare(const ConvProblem&) { return false; }
bool ConvLibrary::Run(const ConvProblem&, const ConvArrays&) { return false; }

struct MatrixLibrary::Impl {
  ElementType element;
  cudaStream_t stream;
  std::set<std::array<uint32_t, 8>> planned;  // cuBLASLt makes a plan for each, which may allocate

  void Plan(const Product& p) {
    const bool is_new = planned
                            .insert({p.rows, p.cols, p.depth, p.a_transposed, p.b_transposed,
                                     p.is_float, p.has_bias, p.has_relu})
                            .second;
    PANDO_CHECK(!is_new || !cuda_on_host::IsCapturing());
  }
};

Result<std::unique_ptr<MatrixLibrary>> MatrixLibrary::Open(const CudaOptions& options,
                                                           cudaStream_t stream) {
  return std::make_unique<MatrixLibrary>(std::make_unique<Impl>(options.element, stream));
}
MatrixLibrary::MatrixLibrary(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MatrixLibrary::~MatrixLibrary() = default;
size_t MatrixLibrary::version() const { return 0; }
bool MatrixLibrary::IsThere() { return true; }

namespace {

template <class T>
float Entry(const Product& p, const ProductArrays& arrays, size_t row, size_t col) {
  const auto* a = static_cast<const T*>(arrays.a);
  const auto* b = static_cast<const T*>(arrays.b);
  float sum = 0;
  for (size_t k = 0; k < p.depth; ++k) {
    sum += ToFloat(a[p.a_transposed ? k * p.rows + row : row * p.depth + k]) *
           ToFloat(b[p.b_transposed ? col * p.depth + k : k * p.cols + col]);
  }
  if (p.has_bias) sum += ToFloat(static_cast<const T*>(arrays.bias)[col]);
  return p.has_relu && sum < 0.0f ? 0.0f : sum;
}

}  // namespace

namespace {

template <class T>
void Multiply(const Product& p, const ProductArrays& arrays) {
  for (size_t row = 0; row < p.rows; ++row) {
    for (size_t col = 0; col < p.cols; ++col) {
      const float entry = Entry<T>(p, arrays, row, col);
      const size_t at = row * p.cols + col;
      if (p.is_float) {
        static_cast<float*>(arrays.c)[at] = entry;
      } else {
        static_cast<T*>(arrays.c)[at] = FromFloat<T>(entry);
      }
    }
  }
}

}  // namespace

void MatrixLibrary::Run(const Product& p, const ProductArrays& arrays) {
  impl_->Plan(p);
  WithElement(impl_->element, [&]<class T>() {
    cuda_on_host::Enqueue(impl_->stream, [p, arrays] { Multiply<T>(p, arrays); });
  });
}

}  // namespace pando::cuda
