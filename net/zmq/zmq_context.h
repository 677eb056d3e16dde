// ZmqContext: ZeroMQ's I/O threads, and whether this process is isolated. One per process, made by
// main; it outlives every transport.
// Threads: any may make sockets from it.
#pragma once

#include <atomic>

#include "proto/outbox.h"

namespace pando {

class ZmqContext {
 public:
  explicit ZmqContext(int io_thread_count = 1);
  // Waits until sent messages have left, at most for the transports' linger.
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;

  void* handle() const { return handle_; }

  // A partition, for tests and fault injection: until then (common/clock.h) this context's
  // transports drop what they would send and receive. A time in the past ends it. Any thread, and
  // signal handlers.
  void IsolateUntil(Micros until) { isolated_until_ = until; }
  bool is_isolated() const;

 private:
  void* handle_;
  std::atomic<Micros> isolated_until_{Micros(0)};
};

}  // namespace pando
