// ConnectionWatch: which of the peers that dialed a ROUTER have lost their connection, and that
// the process keeps free descriptors. Used by net/transport alone. Threads: the socket's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

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
  void Stop() { monitor_.reset(); }
  // Readable when Look has something to do.  REQUIRES: it is started.
  int fd() const { return monitor_->fd(); }
  bool is_started() const { return monitor_ != nullptr; }
  // A message of this peer came by the connection.
  void Note(int connection_fd, Incarnation peer);
  // Reports the lost connections. While few descriptors are free, new connections are ended, and
  // their peers dial again: without any the system would report those that wait to ZeroMQ's thread
  // without a pause.
  void Look();

  uint64_t turned_away() const { return turned_away_; }  // connections so far

 private:
  void OnAccepted(int connection_fd);

  const Options options_;
  std::unique_ptr<ZmqMonitor> monitor_;     // null: not started
  std::map<int, Incarnation> connections_;  // by descriptor
  uint64_t turned_away_ = 0;
};

}  // namespace pando
