// FloatBuffer: a 64-byte aligned array of floats (P35: nothing may depend on addresses), and a pool
// that hands the same memory out again once every Blob over it is gone.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "common/blob.h"

namespace pando {

class FloatBuffer {
 public:
  static constexpr size_t kAlignmentBytes = 64;
  FloatBuffer() = default;
  explicit FloatBuffer(size_t float_count);  // zeroed; its last line is padded with zeros
  // Memory from elsewhere, a GPU's for example: what it holds at first means nothing.
  using Memory = std::unique_ptr<float[], std::function<void(float*)>>;
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

// A buffer that may still be written by its maker, and becomes a Blob when it is done.
using SharedBuffer = std::shared_ptr<FloatBuffer>;

inline Blob ToBlob(SharedBuffer buffer, size_t first = 0, size_t count = SIZE_MAX) {
  std::span<const float> all = std::as_const(*buffer).span();
  return Blob(std::as_bytes(all.subspan(first, count < all.size() ? count : all.size() - first)),
              std::move(buffer));
}

// Where a pool's buffers come from. Other processes may read a buffer after its last owner here has
// let go of it (P42): it is handed out again only once the source has renewed it.
struct BufferSource {
  // What a new buffer holds means nothing.
  std::function<FloatBuffer(size_t float_count)> make = [](size_t count) {
    return FloatBuffer(count);
  };
  // Whether the buffer may be written again; where it may, nobody reads what it held any more.
  std::function<bool(const FloatBuffer& buffer)> renew;  // none: always
};

// BufferPool reuses buffers of one size. Contents of a reused buffer are whatever was there.
// Threads: any; a buffer may be given back on another thread than it was taken on (ZeroMQ's I/O
// threads do). The pool may be destroyed before its buffers.
class BufferPool {
 public:
  using Make = std::function<FloatBuffer(size_t float_count)>;
  explicit BufferPool(size_t float_count, BufferSource source = {});
  BufferPool(size_t float_count, Make make)
      : BufferPool(float_count, BufferSource{std::move(make), {}}) {}
  SharedBuffer Take();
  // Buffers made so far, in use or waiting: the pool's high-water mark.
  size_t made_count() const;

 private:
  struct Shelf {  // guarded by its mutex: the free buffers and the count of all
    std::mutex mutex;
    std::vector<std::unique_ptr<FloatBuffer>> free;
    size_t made_count = 0;
  };
  std::unique_ptr<FloatBuffer> TakeFree();

  size_t float_count_;
  BufferSource source_;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace pando
