// BufferPool reuses the memory of FloatBuffers once every Blob over them is gone.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "common/float_buffer.h"

namespace pando {

// The source of a pool's buffers. Other processes may still read a buffer after its last owner here
// has released it (P42). So the pool reuses a buffer only after the source has renewed it.
struct BufferSource {
  // The initial content of a new buffer is undefined.
  std::function<FloatBuffer(size_t float_count)> make = [](size_t count) {
    return FloatBuffer(count);
  };
  // Returns whether the buffer may be written again, since no process reads its old content.
  std::function<bool(const FloatBuffer& buffer)> renew;
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
  // Returns how many buffers were made so far, used or free: the pool's high-water mark.
  size_t made_count() const;

 private:
  struct Shelf;  // the free buffers and the total count
  std::unique_ptr<FloatBuffer> TakeFree();

  size_t float_count_;
  BufferSource source_;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace pando
