// ZmqMonitor reports when the connections of a ZmqSocket begin, finish their handshake and end. It
// uses ZeroMQ's C functions. cppzmq's monitor_t hides the socket that receives the events: it has
// no descriptor to wait for, its queue stays bounded, and a signal ends the process. zmq_socket.cc
// implements it. Threads: made and destroyed on the socket's; one at a time receives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <zmq.hpp>

#include "net/zmq/zmq_socket.h"

namespace pando {

class ZmqMonitor {
 public:
  // `socket` outlives the monitor.
  static Result<std::unique_ptr<ZmqMonitor>> Create(ZmqContext& context, ZmqSocket& socket);
  ~ZmqMonitor();
  ZmqMonitor(const ZmqMonitor&) = delete;
  ZmqMonitor& operator=(const ZmqMonitor&) = delete;

  struct Event {
    enum class Kind : uint8_t { kAccepted, kFinishedHandshake, kEnded };
    Kind kind = Kind::kEnded;
    int connection_fd = -1;  // not set for kFinishedHandshake
  };
  // Returns the next event, or nullopt if there is none now. The end of a connection is reported
  // before the first message of another one with the same descriptor. Never blocks.
  std::optional<Event> Receive();

  // Becomes readable when an event has come since Receive last returned none. REQUIRES: it has
  // returned none once.
  int fd() const { return fd_; }

 private:
  ZmqMonitor(zmq::socket_ref monitored, zmq::socket_t events, int fd)
      : monitored_(monitored), events_(std::move(events)), fd_(fd) {}

  zmq::socket_ref monitored_;
  zmq::socket_t events_;
  int fd_;
};

}  // namespace pando
