// ZmqContext: ZeroMQ's I/O threads, and whether this process is isolated. IsolationSignal isolates
// it for fault injection.
#pragma once

#include <atomic>
#include <string>
#include <zmq.hpp>

#include "common/clock.h"

namespace pando {

// One per process, made by main; it outlives every transport. Its end waits until sent messages
// have left, at most for the transports' linger.
// Threads: any may make sockets from it.
class ZmqContext {
 public:
  explicit ZmqContext(int io_thread_count = 1) noexcept;

  zmq::context_t& zmq_context() { return context_; }

  // A partition, for tests and fault injection: until then (common/clock.h) this context's
  // transports drop what they would send and receive. A time in the past ends it. Any thread, and
  // signal handlers.
  void IsolateUntil(Micros until) { isolated_until_ = until; }
  bool is_isolated() const;

 private:
  zmq::context_t context_;
  std::atomic<Micros> isolated_until_{Micros(0)};
};

// SIGUSR2, sent by sigqueue(2) with a number of milliseconds (0 ends it), isolates the context for
// that time. Made by the scheduler, server and worker processes. One at a time in a process,
// because signal handlers belong to the process.
class IsolationSignal {
 public:
  explicit IsolationSignal(ZmqContext& context);  // outlives the signal
  ~IsolationSignal();                             // SIGUSR2 is ignored from then on
  IsolationSignal(const IsolationSignal&) = delete;
  IsolationSignal& operator=(const IsolationSignal&) = delete;
};

// The version of the ZeroMQ library: "4.3.4".
std::string ZmqVersion();

}  // namespace pando
