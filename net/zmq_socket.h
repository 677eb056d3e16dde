// ZmqSocket: one ROUTER or DEALER with the options that the protocol needs; moves frames without
// copying them. ZmqMonitor: which of its connections end. Used by net/transport alone.
//
// On the wire a message is its frames, frame 0 first. A ROUTER puts the peer's routing id in front
// of what it hands to us, and takes it off what we hand to it. Threads: one at a time.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"
#include "net/zmq_context.h"
#include "proto/codec.h"

namespace pando {

// Messages queued to a peer that does not take them; beyond it they are dropped. One that sends
// faster than we read is held back by its TCP window. The protocol's own bounds (I6) stay far
// below: a worker has one reply per shard in flight, gathered into few messages.
inline constexpr int kQueuedPerPeerMax = 1000;

class ZmqSocket {
 public:
  enum class Kind { kRouter, kDealer };
  struct Options {
    Kind kind = Kind::kDealer;
    std::string routing_id;                       // kDealer: by which the peer's ROUTER knows us
    int linger_ms = 0;                            // how long sent messages outlive the socket
    int queued_messages_max = kQueuedPerPeerMax;  // beyond it messages are dropped
  };
  static Result<ZmqSocket> Create(ZmqContext& context, const Options& options);

  // The endpoint with what the system chose filled in.
  Result<std::string> Bind(const std::string& endpoint);
  Status Connect(const std::string& endpoint);

  enum class Sent { kYes, kUnroutable, kQueueFull };
  // `routing_id`: the peer's; kRouter only.  Never blocks. The frames' owners are released on one
  // of ZeroMQ's threads once the bytes have gone.
  Sent Send(const std::string& routing_id, const Frames& frames);

  struct Received {
    std::string routing_id;  // kRouter: the sender's
    Frames frames;           // too many frames are cut to kFramesPerMessageMax + 1
    int connection_fd = -1;  // of the connection it came by, which another may have after its end
  };
  // False if nothing is there.  Never blocks.
  bool Receive(Received* received);

  // Becomes readable when something has come since Receive, or has_message, was last false; a Send
  // in between may have taken that word for itself.
  int fd() const { return fd_; }
  bool has_message() const;

 private:
  struct Close {
    void operator()(void* handle) const;
  };
  friend class ZmqMonitor;
  void* handle() const { return handle_.get(); }
  ZmqSocket(void* handle, Kind kind, int fd) : handle_(handle), kind_(kind), fd_(fd) {}

  std::unique_ptr<void, Close> handle_;
  Kind kind_;
  int fd_;
  bool is_monitored_ = false;
};

// Threads: the socket's.
class ZmqMonitor {
 public:
  // `socket` outlives the monitor.
  static Result<std::unique_ptr<ZmqMonitor>> Create(ZmqContext& context, ZmqSocket& socket);
  ~ZmqMonitor();
  ZmqMonitor(const ZmqMonitor&) = delete;
  ZmqMonitor& operator=(const ZmqMonitor&) = delete;

  // The next connection that has ended, by its descriptor: false if there is none now. The end of a
  // connection is here before the first message of another with the same descriptor. Never blocks.
  bool Receive(int* connection_fd);

  // Becomes readable when an event has come since Receive was last false, as it has to be first.
  int fd() const { return fd_; }

 private:
  void* handle() const { return handle_.get(); }
  ZmqMonitor(void* monitored, void* handle, int fd)
      : monitored_(monitored), handle_(handle), fd_(fd) {}

  void* monitored_;
  std::unique_ptr<void, ZmqSocket::Close> handle_;
  int fd_;
};

}  // namespace pando
