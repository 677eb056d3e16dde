// ScratchCarver cuts one block of scratch memory into arrays, each on separate lines of its device.
// Without a block it counts the bytes that are needed, so that size and use agree.
//
// An operation's Scratch is a struct with the lengths, the carver, and arrays that take their part:
//   float* sums = carver.Take<float>(channels);
// Scratch{channels, ScratchCarver(memory)} has the arrays, Scratch{channels}.carver the bytes.
#pragma once

#include <cstddef>
#include <span>

#include "common/check.h"

namespace pando {

template <size_t kLineBytes>
class ScratchCarver {
 public:
  ScratchCarver() = default;  // counts only
  explicit ScratchCarver(std::span<std::byte> memory)
      : base_(memory.data()), capacity_bytes_(memory.size()) {}

  template <class T>
  T* Take(size_t count) {
    const size_t first = used_bytes_;
    used_bytes_ += (count * sizeof(T) + kLineBytes - 1) / kLineBytes * kLineBytes;
    if (base_ == nullptr) return nullptr;
    PANDO_CHECK(used_bytes_ <= capacity_bytes_);
    return reinterpret_cast<T*>(base_ + first);
  }
  size_t used_bytes() const { return used_bytes_; }
  // Returns the unused rest. REQUIRES: the carver has a block.
  std::span<std::byte> rest() const { return {base_ + used_bytes_, capacity_bytes_ - used_bytes_}; }

 private:
  std::byte* base_ = nullptr;
  size_t capacity_bytes_ = 0;
  size_t used_bytes_ = 0;
};

namespace cpu {
using ScratchCarver = pando::ScratchCarver<64>;
}  // namespace cpu
namespace cuda {
using ScratchCarver = pando::ScratchCarver<256>;
}  // namespace cuda

}  // namespace pando
