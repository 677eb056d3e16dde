// In place of cuBLASLt, whose products follow their definition, and NCCL.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>

#include "common/check.h"
#include "kernels/cuda/map.h"
#include "kernels/cuda/matrix_library.h"
#include "kernels/gpu_sum.h"
#include "tests/cuda_on_host/device.h"

namespace pando::cuda {

using cuda_on_host::ForLoad;
using cuda_on_host::ForStore;

struct MatrixLibrary::Impl {
  ElementType element;
  cudaStream_t stream;
  std::set<Product> planned;  // cuBLASLt makes a plan for each, which may allocate

  void Plan(const Product& p) {
    const bool is_new = planned.insert(p).second;
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

template <class T>
void Multiply(const Product& p, ProductArrays arrays) {
  arrays.a = ForLoad(static_cast<const T*>(arrays.a), p.rows * p.depth);
  arrays.b = ForLoad(static_cast<const T*>(arrays.b), p.depth * p.cols);
  if (p.has_bias) arrays.bias = ForLoad(static_cast<const T*>(arrays.bias), p.cols);
  if (p.is_float) {
    arrays.c = ForStore(static_cast<float*>(arrays.c), p.rows * p.cols);
  } else {
    arrays.c = ForStore(static_cast<T*>(arrays.c), p.rows * p.cols);
  }
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

// ------------------------------------------------------------------------------ in place of NCCL

namespace pando {
namespace {

// The ranks of a group, threads of one process: none comes from another one.
struct Circle {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint32_t, std::span<float>> arrays;  // of the call under way, by rank
  uint32_t joined_count = 0;
  uint32_t left_count = 0;  // members that have their sums
};
struct Circles {
  std::mutex mutex;
  uint64_t last_name = 0;
  std::map<uint64_t, std::shared_ptr<Circle>> by_name;
};
Circles& AllCircles() {
  static Circles circles;
  return circles;
}

}  // namespace

struct GpuSum::Impl {
  std::shared_ptr<Circle> circle;
  uint32_t rank;
  uint32_t size;
};

Status GpuSum::Check() { return Status(); }

Result<GpuSum::GroupName> GpuSum::NewName() {
  Circles& circles = AllCircles();
  const std::lock_guard lock(circles.mutex);
  GroupName name{};
  std::memcpy(name.data(), &++circles.last_name, sizeof(circles.last_name));
  circles.by_name[circles.last_name] = std::make_shared<Circle>();
  return name;
}

// As NCCL: all ranks have come, or none has joined.
Result<std::unique_ptr<GpuSum>> GpuSum::Join(const Member& member, const std::atomic<bool>&) {
  constexpr std::chrono::milliseconds kPatience{3000};
  uint64_t name = 0;
  std::memcpy(&name, member.group.data(), sizeof(name));
  std::shared_ptr<Circle> circle;
  {
    Circles& circles = AllCircles();
    const std::lock_guard lock(circles.mutex);
    const auto found = circles.by_name.find(name);
    if (found == circles.by_name.end())
      return Unavailable("NCCL in the host's place: a rank is in another process");
    circle = found->second;
  }
  std::unique_lock lock(circle->mutex);
  ++circle->joined_count;
  circle->changed.notify_all();
  const bool is_whole = circle->changed.wait_for(
      lock, kPatience, [&] { return circle->joined_count == member.size; });
  if (!is_whole) return Unavailable("NCCL in the host's place: not all ranks came");
  return std::unique_ptr<GpuSum>(
      new GpuSum(std::make_unique<Impl>(std::move(circle), member.rank, member.size)));
}

GpuSum::GpuSum(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GpuSum::~GpuSum() = default;

// The last to come adds, in the order of ranks.
Status GpuSum::Sum(std::span<float> values) {
  Circle& circle = *impl_->circle;
  std::unique_lock lock(circle.mutex);
  circle.changed.wait(lock, [&] { return circle.left_count == 0; });
  circle.arrays[impl_->rank] = values;
  if (circle.arrays.size() == impl_->size) {
    const std::span<float> first = circle.arrays.begin()->second;
    for (auto other = std::next(circle.arrays.begin()); other != circle.arrays.end(); ++other) {
      PANDO_CHECK(other->second.size() == first.size());
      for (size_t i = 0; i < first.size(); ++i) first[i] += other->second[i];
    }
    for (auto& [rank, array] : circle.arrays) std::ranges::copy(first, array.begin());
    circle.left_count = impl_->size;
    circle.arrays.clear();
    circle.changed.notify_all();
  }
  while (circle.left_count == 0) {
    if (is_closed_) {
      circle.arrays.erase(impl_->rank);
      return Unavailable("NCCL in the host's place: called off");
    }
    circle.changed.wait_for(lock, std::chrono::milliseconds(1));
  }
  if (--circle.left_count == 0) circle.changed.notify_all();
  return Status();
}

// A GPU's memory is the host's.
Status GpuSum::Sum(Pieces pieces, std::span<float> sums) {
  float* to = sums.data();
  for (const std::span<const float> piece : pieces) {
    to = std::copy_n(cuda_on_host::ForLoad(piece.data(), piece.size()), piece.size(), to);
  }
  PANDO_CHECK(to == sums.data() + sums.size());
  return Sum(sums);
}

}  // namespace pando
