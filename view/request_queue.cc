#include "view/request_queue.h"

#include <system_error>
#include <utility>

#include "common/out_of_memory.h"
#include "view/scoped_stack_size.h"

namespace pando {
RequestQueue::RequestQueue() {
  // httplib reads ranges with regular expressions, which recurse for each letter. With the small
  // stacks of the viewer's other threads a long header would crash it.
  const ScopedStackSize large(size_t{8} << 20);
  try {
    for (size_t i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Run(); });
  } catch (const std::system_error&) {
    EndOutOfMemory(0, "room for another thread");
  }
}

void RequestQueue::enqueue(std::function<void()> task) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.size() < kWaitingMax || is_closed_; });
  waiting_.push_back(std::move(task));
  changed_.notify_all();
}

void RequestQueue::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RequestQueue::Run() {
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !waiting_.empty() || is_closed_; });
      if (waiting_.empty()) return;
      task = std::move(waiting_.front());
      waiting_.pop_front();
    }
    changed_.notify_all();
    task();
  }
}

}  // namespace pando
