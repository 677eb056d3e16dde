// StopFlag asks a loop (event_loop.h) on another thread to return.
#pragma once

#include <atomic>

#include "common/event_fd.h"

namespace pando {

class StopFlag {
 public:
  void Request() {  // any thread, and signal handlers
    is_requested_ = true;
    event_.Raise();
  }
  bool is_requested() const { return is_requested_; }
  int fd() const { return event_.fd(); }  // readable after a request

 private:
  std::atomic<bool> is_requested_ = false;
  EventFd event_;
};

}  // namespace pando
