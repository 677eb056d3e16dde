// HandshakeWatch ends connections to a ROUTER before they cost much: ZeroMQ takes a frame of up to
// kFrameBytesMax from each stranger whose handshake is not finished. It reports the connections
// that end. Used by net/connection_watch alone.
//
// A connection ends if it has sent 64 KiB without a finished handshake, of which one needs less
// than 1 KiB; if it is the oldest of more than 64 such; and if few descriptors are free. Its peer
// may dial again. ZeroMQ ends those whose handshake takes kHandshakeMs.
//
// ZeroMQ's event of a finished handshake does not name the connection. With keys the kernel knows
// it: the last command of a handshake is ours, after the peer's key was accepted, and the kernel
// counts the bytes that the peer has acknowledged. Without keys the event clears all connections
// that are watched: a stranger may then finish its handshake anyway.
//
// Threads: one at a time calls it; a separate one looks every 5 ms, in which a loopback brings some
// megabytes. The first may be busy for longer.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/descriptor.h"
#include "common/mailbox.h"
#include "net/zmq/zmq_socket.h"

namespace pando {

class HandshakeWatch {
 public:
  // `monitor`: of a ROUTER that is not bound yet and is secured so.
  HandshakeWatch(std::unique_ptr<ZmqMonitor> monitor, LineSecurity::Kind security);
  ~HandshakeWatch();
  HandshakeWatch(const HandshakeWatch&) = delete;
  HandshakeWatch& operator=(const HandshakeWatch&) = delete;

  struct News {
    int ended_fd = -1;  // the descriptor of a connection that has ended
    std::string warning = {};
  };
  // The end of a connection is reported before the first message of another one with the same
  // descriptor.
  std::deque<News> TakeNews();
  // Readable when there are news.
  int fd() const { return news_.fd(); }

  uint64_t turned_away() const { return turned_away_; }  // connections that were ended so far

 private:
  struct Connection {
    UniqueFd copy;  // names the connection also after ZeroMQ has closed its own descriptor
    Micros accepted_at{0};
  };
  void Run();
  void ReadEvents();
  void OnAccepted(int connection_fd);
  void EndExcessive();
  std::vector<int> FindExcessive(Micros now);
  void NoteTurnedAway(const std::string& why);

  const std::unique_ptr<ZmqMonitor> monitor_;
  const LineSecurity::Kind security_;
  Mailbox<News> news_;
  std::atomic<uint64_t> turned_away_ = 0;
  EventFd wake_;                           // the thread
  std::mutex mutex_;                       // guards the monitor and all below
  std::map<int, Connection> connections_;  // whose handshake may be unfinished, by descriptor
  std::set<std::string> warned_;           // of these reasons
  bool is_over_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace pando
