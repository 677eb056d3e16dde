// Mailbox is a first-in, first-out queue from any threads to one thread. That thread either sleeps
// on it (Pop) or polls its fd() together with sockets. Threads: any may Push and Close; one thread
// takes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "common/event_fd.h"

namespace pando {

enum class Wake { kNow, kLater };

template <class T>
class Mailbox {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kUnbounded = std::numeric_limits<size_t>::max();
  explicit Mailbox(size_t item_count_max = kUnbounded) : item_count_max_(item_count_max) {}

  // Returns false if the mailbox is full or closed; the item is then dropped. An item with kLater
  // wakes no thread and is taken together with the next item that does.
  [[nodiscard]] bool Push(T item, Wake wake = Wake::kNow) {
    const std::lock_guard lock(mutex_);
    if (is_closed_ || items_.size() >= item_count_max_) return false;
    items_.push_back(std::move(item));
    if (wake == Wake::kLater) return true;
    if (!is_raised_) event_.Raise();
    is_raised_ = true;
    changed_.notify_one();
    return true;
  }

  // Refuses further items and wakes the taker. Items that are already queued can still be taken.
  void Close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = is_raised_ = true;
    event_.Raise();
    changed_.notify_all();
  }

  // Takes all items at once.
  std::deque<T> Drain() {
    const std::lock_guard lock(mutex_);
    std::deque<T> taken;
    taken.swap(items_);
    ClearWhenEmpty();
    return taken;
  }

  // Waits for an item. Returns none if the deadline passes, or the mailbox is closed and empty.
  std::optional<T> Pop(Clock::time_point deadline = Clock::time_point::max()) {
    std::unique_lock lock(mutex_);
    const auto has_news = [this] { return !items_.empty() || is_closed_; };
    if (deadline == Clock::time_point::max()) {
      changed_.wait(lock, has_news);
    } else {
      changed_.wait_until(lock, deadline, has_news);
    }
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    ClearWhenEmpty();
    return item;
  }

  // The descriptor is readable while an item that wakes is queued, and always after Close.
  int fd() const { return event_.fd(); }
  bool is_closed() const {
    const std::lock_guard lock(mutex_);
    return is_closed_;
  }

 private:
  void ClearWhenEmpty() {
    if (!items_.empty() || is_closed_ || !is_raised_) return;
    event_.Clear();
    is_raised_ = false;
  }

  const size_t item_count_max_;
  const EventFd event_;  // raised exactly while is_raised_
  std::condition_variable changed_;
  mutable std::mutex mutex_;  // guards all members below
  std::deque<T> items_;
  bool is_raised_ = false;  // the taker must wake
  bool is_closed_ = false;
};

}  // namespace pando
