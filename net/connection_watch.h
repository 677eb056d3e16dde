// ConnectionWatch: which of the peers that dialed a ROUTER have lost their connection, and what
// happens when it can accept none. Used by net/transport alone. Threads: the socket's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/descriptor.h"
#include "net/zmq/zmq_socket.h"
#include "proto/messages.h"

namespace pando {

class ConnectionWatch {
 public:
  struct Options {
    std::function<void(Incarnation peer)> on_disconnect;      // null: not told
    std::function<void(const std::string& text)> on_warning;  // null: not told
  };
  explicit ConnectionWatch(Options options) : options_(std::move(options)) {}

  // REQUIRES: `router` is not bound yet.
  Status Start(ZmqContext& context, ZmqSocket& router);
  void Stop();
  // Readable when Look has something to do.  REQUIRES: it is started.
  int fd() const { return monitor_->fd(); }
  bool is_started() const { return monitor_ != nullptr; }
  // A message of this peer came by the connection.
  void Note(int connection_fd, Incarnation peer);
  // Reports the lost connections. A process without a free descriptor cannot accept the peers that
  // wait for a connection, and the system would report them to ZeroMQ's thread without a pause:
  // they are turned away, and dial again.
  void Look();

 private:
  void TurnAway(int error);

  const Options options_;
  std::unique_ptr<ZmqMonitor> monitor_;     // null: not started
  std::map<int, Incarnation> connections_;  // by descriptor
  int listening_fd_ = -1;                   // ZeroMQ's
  UniqueFd reserve_;                        // given up for a moment to turn a peer away
  bool has_warned_ = false;
};

}  // namespace pando
