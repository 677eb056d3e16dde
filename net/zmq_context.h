// ZmqContext: ZeroMQ's I/O threads. One per process, made by main, outlives every transport.
// Threads: any may make sockets from it.
#pragma once

namespace pando {

class ZmqContext {
 public:
  explicit ZmqContext(int io_thread_count = 1);
  // Waits until what was sent is on its way, at most the transports' linger.
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;

  void* handle() const { return handle_; }

 private:
  void* handle_;
};

}  // namespace pando
