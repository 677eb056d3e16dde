// FloatBuffer is a 64-byte aligned array of floats (P35: nothing may depend on addresses).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "common/blob.h"

namespace pando {

class FloatBuffer {
 public:
  static constexpr size_t kAlignmentBytes = 64;
  FloatBuffer() = default;
  FloatBuffer(FloatBuffer&&) = default;  // no copy: it would share the floats
  FloatBuffer& operator=(FloatBuffer&&) = default;
  explicit FloatBuffer(size_t float_count);  // zeroed, with the padding of the last cache line
  // Takes memory from elsewhere, for example a GPU's, with its deleter; its content is undefined.
  using Memory = std::shared_ptr<float[]>;
  FloatBuffer(Memory memory, size_t float_count) : data_(std::move(memory)), size_(float_count) {}

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<float> span() { return {data_.get(), size_}; }
  std::span<const float> span() const { return {data_.get(), size_}; }

 private:
  Memory data_;
  size_t size_ = 0;
};

// A buffer that its maker may still write. It becomes a Blob when it is finished.
using SharedBuffer = std::shared_ptr<FloatBuffer>;

inline Blob ToBlob(SharedBuffer buffer, size_t first = 0, size_t count = SIZE_MAX) {
  std::span<const float> all = std::as_const(*buffer).span();
  return Blob(std::as_bytes(all.subspan(first, count < all.size() ? count : all.size() - first)),
              std::move(buffer));
}

}  // namespace pando
