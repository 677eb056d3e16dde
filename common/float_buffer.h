// FloatBuffer: a 64-byte aligned array of floats (P35: nothing may depend on addresses), and a pool
// that reuses memory once every Blob over it is gone.
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
  explicit FloatBuffer(size_t float_count);  // zeroed, with the padding of the last cache line
  // Wraps memory from elsewhere, for example a GPU's. Its initial content is undefined.
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

// A buffer that its maker may still write. The maker turns the finished buffer into a Blob.
using SharedBuffer = std::shared_ptr<FloatBuffer>;

inline Blob ToBlob(SharedBuffer buffer, size_t first = 0, size_t count = SIZE_MAX) {
  std::span<const float> all = std::as_const(*buffer).span();
  return Blob(std::as_bytes(all.subspan(first, count < all.size() ? count : all.size() - first)),
              std::move(buffer));
}

// The source of a pool's buffers. Other processes may still read a buffer after its last owner here
// has released it (P42). So the pool reuses a buffer only after the source has renewed it.
struct BufferSource {
  // The initial content of a new buffer is undefined.
  std::function<FloatBuffer(size_t float_count)> make = [](size_t count) {
    return FloatBuffer(count);
  };
  // Returns whether the buffer may be written again. If so, no process reads its old content any
  std::function<bool(const FloatBuffer& buffer)> renew;  // more.
};

// BufferPool reuses buffers of one size. The content of a reused buffer is undefined. Threads: any;
// a buffer may be returned on another thread than the one that took it (ZeroMQ's I/O threads do
// this). The pool may be destroyed before its buffers.
class BufferPool {
 public:
  using Make = std::function<FloatBuffer(size_t float_count)>;
  explicit BufferPool(size_t float_count, BufferSource source = {});
  BufferPool(size_t float_count, Make make)
      : BufferPool(float_count, BufferSource{std::move(make), {}}) {}
  SharedBuffer Take();
  // The buffers made so far, used or free: the pool's high-water mark.
  size_t made_count() const;

 private:
  struct Shelf {  // guarded by its mutex: the free buffers and the total count
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
