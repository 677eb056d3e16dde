// ScratchCarver cuts a scratch area into arrays aligned to 256 bytes, or counts the bytes that they
// need.
#pragma once

#include <cstddef>
#include <span>

#include "common/check.h"

namespace pando::cuda {

class ScratchCarver {
 public:
  ScratchCarver() = default;  // counts
  explicit ScratchCarver(std::span<std::byte> scratch) : scratch_(scratch), is_counting_(false) {}

  std::byte* Take(size_t size_bytes) {
    const size_t first = used_bytes_;
    used_bytes_ += (size_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
    if (is_counting_) return nullptr;
    PANDO_CHECK(first + size_bytes <= scratch_.size());
    return scratch_.data() + first;
  }
  size_t used_bytes() const { return used_bytes_; }

 private:
  static constexpr size_t kAlignmentBytes = 256;
  std::span<std::byte> scratch_;
  bool is_counting_ = true;
  size_t used_bytes_ = 0;
};

}  // namespace pando::cuda
