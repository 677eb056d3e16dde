// ConnectionWatch finds the peers that dialed a ROUTER and have lost their connection. Only
// net/transport uses it. Threads: the socket's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "net/zmq/handshake_watch.h"
#include "proto/messages.h"

namespace pando {

class ConnectionWatch {
 public:
  struct Options {
    std::function<void(Incarnation peer)> on_disconnect;      // may be null
    std::function<void(const std::string& text)> on_warning;  // may be null
  };
  explicit ConnectionWatch(Options options) : options_(std::move(options)) {}

  // Watches the connections of `router`. REQUIRES: `router` is not bound yet.
  Status Start(ZmqContext& context, ZmqSocket& router, LineSecurity::Kind security);
  void Stop() { handshakes_.reset(); }
  // The descriptor is readable when Look has something to do. REQUIRES: is_started().
  int fd() const { return handshakes_->fd(); }
  bool is_started() const { return handshakes_ != nullptr; }
  // Notes that a message of this peer came on the connection.
  void Note(int connection_fd, Incarnation peer);
  // Reports the lost connections and calls on_warning. Call it when no message waits: a
  // connection's last messages come before its end.
  void Look();
  // Call it in each turn of the loop. Looks if messages have never stopped for many turns.
  void OnWait() {
    if (++waits_ > kWaitsMax) Look();
  }
  // Returns the number of connections that were ended; 0 if it is not started.
  uint64_t turned_away() const { return is_started() ? handshakes_->turned_away() : 0; }

 private:
  static constexpr int kWaitsMax = 4;

  const Options options_;
  std::unique_ptr<HandshakeWatch> handshakes_;        // null: not started
  std::unordered_map<int, Incarnation> connections_;  // by descriptor
  int waits_ = 0;                                     // since the last look
};

}  // namespace pando
