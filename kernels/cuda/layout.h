// Parts of a scratch area, and conversion between layouts and element types on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/check.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/ops.h"

namespace pando::cuda {

// Cuts a scratch area into arrays aligned to 256 bytes; or, without an area, counts the bytes that
// they need.
class ScratchCarver {
 public:
  ScratchCarver() = default;  // counts
  ScratchCarver(std::span<std::byte> scratch) : scratch_(scratch), is_counting_(false) {}

  // Null if it counts.
  template <class T = void>
  T* Take(size_t size_bytes) {
    const size_t first = used_bytes_;
    used_bytes_ += (size_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
    if (is_counting_) return nullptr;
    PANDO_CHECK(first + size_bytes <= scratch_.size());
    return reinterpret_cast<T*>(scratch_.data() + first);
  }
  size_t used_bytes() const { return used_bytes_; }

 private:
  static constexpr size_t kAlignmentBytes = 256;
  std::span<std::byte> scratch_;
  bool is_counting_ = true;
  size_t used_bytes_ = 0;
};

// Converts floats at any address to elements, and elements to floats.
void ToElements(CudaDevice& gpu, size_t count, const float* x, void* y);
void ToFloats(CudaDevice& gpu, size_t count, const void* x, float* y);

// Converts weights from PyTorch's [out, channels / groups, taps] to [out, taps, channels / groups]
// in elements, and gradients back.
void FilterToElements(CudaDevice& gpu, const Conv2dSpec& spec, const float* x, void* y);
void FilterToFloats(CudaDevice& gpu, const Conv2dSpec& spec, const void* x, float* y);
// [rows, columns] to [columns, rows], for floats.
void TransposeFloats(CudaDevice& gpu, uint32_t rows, uint32_t columns, const float* x, float* y);

}  // namespace pando::cuda
