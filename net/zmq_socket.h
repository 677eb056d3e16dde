// ZmqSocket: one ROUTER or DEALER with the options that the protocol needs; moves frames without
// copying them. Used by net/transport alone.
//
// On the wire a message is its frames, frame 0 first. A ROUTER puts the peer's routing id in front
// of what it hands to us, and takes it off what we hand to it. Threads: one at a time.
#pragma once

#include <string>

#include "common/status.h"
#include "net/zmq_context.h"
#include "proto/codec.h"

namespace pando {

class ZmqSocket {
 public:
  enum class Kind { kRouter, kDealer };
  struct Options {
    Kind kind = Kind::kDealer;
    std::string routing_id;       // kDealer: by which the peer's ROUTER knows us
    int linger_ms = 0;            // how long sent messages outlive the socket
    int queued_messages_max = 0;  // kDealer: beyond it messages are dropped; 0: no bound
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
  };
  // False if nothing is there.  Never blocks.
  bool Receive(Received* received);

  void* handle() const { return handle_.get(); }

 private:
  struct Close {
    void operator()(void* handle) const;
  };
  ZmqSocket(void* handle, Kind kind) : handle_(handle), kind_(kind) {}

  std::unique_ptr<void, Close> handle_;
  Kind kind_;
};

}  // namespace pando
