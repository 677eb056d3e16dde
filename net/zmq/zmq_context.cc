#include "net/zmq/zmq_context.h"

#include <zmq.h>

#include <cerrno>

#include "common/check.h"
#include "common/clock.h"

namespace pando {
namespace {

constexpr int kSocketsMax = 16384;  // a worker has one per server lane

}  // namespace

ZmqContext::ZmqContext(int io_thread_count) : handle_(zmq_ctx_new()) {
  PANDO_CHECK(handle_ != nullptr);
  PANDO_CHECK(zmq_ctx_set(handle_, ZMQ_IO_THREADS, io_thread_count) == 0);
  PANDO_CHECK(zmq_ctx_set(handle_, ZMQ_MAX_SOCKETS, kSocketsMax) == 0);
}

bool ZmqContext::is_isolated() const {
  const Micros until = isolated_until_.load(std::memory_order_relaxed);
  return until != Micros(0) && SteadyNow() < until;
}

ZmqContext::~ZmqContext() {
  while (zmq_ctx_term(handle_) != 0) PANDO_CHECK(errno == EINTR);
}

}  // namespace pando
