#include "common/float_buffer.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace pando {

FloatBuffer::FloatBuffer(size_t float_count) : size_(float_count) {
  size_t bytes = float_count * sizeof(float);
  size_t rounded = (bytes / kAlignmentBytes + 1) * kAlignmentBytes;
  data_ = Memory(static_cast<float*>(std::aligned_alloc(kAlignmentBytes, rounded)),
                 [](float* p) { std::free(p); });
  PANDO_CHECK(data_ != nullptr);
  std::memset(data_.get(), 0, rounded);
}

BufferPool::BufferPool(size_t float_count, Make make)
    : float_count_(float_count), make_(std::move(make)), shelf_(std::make_shared<Shelf>()) {}

SharedBuffer BufferPool::Take() {
  std::unique_ptr<FloatBuffer> buffer;
  {
    std::lock_guard lock(shelf_->mutex);
    if (shelf_->free.empty()) {
      ++shelf_->made_count;
    } else {
      buffer = std::move(shelf_->free.back());
      shelf_->free.pop_back();
    }
  }
  if (buffer == nullptr) buffer = std::make_unique<FloatBuffer>(make_(float_count_));
  auto give_back = [shelf = shelf_](FloatBuffer* b) {
    std::lock_guard lock(shelf->mutex);
    shelf->free.emplace_back(b);
  };
  return SharedBuffer(buffer.release(), give_back);
}

size_t BufferPool::made_count() const {
  std::lock_guard lock(shelf_->mutex);
  return shelf_->made_count;
}

}  // namespace pando
