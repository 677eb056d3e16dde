#include "common/buffer_pool.h"

#include <iterator>
#include <mutex>
#include <vector>

namespace pando {

struct BufferPool::Shelf {
  std::mutex mutex;  // guards both
  std::vector<std::unique_ptr<FloatBuffer>> free;
  size_t made_count = 0;
};

BufferPool::BufferPool(size_t float_count, BufferSource source)
    : float_count_(float_count), source_(std::move(source)), shelf_(std::make_shared<Shelf>()) {}

// Returns the buffer that was given back last and may be written again, or null.
std::unique_ptr<FloatBuffer> BufferPool::TakeFree() {
  std::lock_guard lock(shelf_->mutex);
  auto& free = shelf_->free;
  for (auto it = free.rbegin(); it != free.rend(); ++it) {
    if (source_.renew && !source_.renew(**it)) continue;
    std::unique_ptr<FloatBuffer> buffer = std::move(*it);
    free.erase(std::next(it).base());
    return buffer;
  }
  ++shelf_->made_count;
  return nullptr;
}

SharedBuffer BufferPool::Take() {
  std::unique_ptr<FloatBuffer> buffer = TakeFree();
  if (buffer == nullptr) buffer = std::make_unique<FloatBuffer>(source_.make(float_count_));
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
