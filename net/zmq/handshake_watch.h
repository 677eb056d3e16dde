// HandshakeWatch ends connections to a ROUTER before they cost much: ZeroMQ takes a frame of up to
// kFrameBytesMax from each stranger whose handshake is not finished. It also reports connections
// that end. Only net/connection_watch uses it.
//
// It ends a connection that has sent 64 KiB without a finished handshake, which needs less than 1
// KiB; the oldest of more than 64 unfinished ones; and one that comes when few descriptors are
// free. Its peer may dial again. ZeroMQ ends connections whose handshake takes kHandshakeMs.
//
// ZeroMQ's event of a finished handshake does not name the connection. With keys the kernel can
// tell: the last command of a handshake is ours, sent after the peer's key was accepted, and the
// kernel counts the bytes that the peer has acknowledged. Without keys the event clears all watched
// connections, since a stranger may then finish its handshake anyway.
//
// Threads: one at a time calls it, and may be busy for long. So a separate thread checks the
// connections every 5 ms. In that time a loopback connection brings some megabytes.
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
#include "common/event_fd.h"
#include "common/mailbox.h"
#include "common/unique_fd.h"
#include "net/zmq/zmq_monitor.h"

namespace pando {

class HandshakeWatch {
 public:
  // `monitor` watches a ROUTER that is not bound yet and has this security.
  HandshakeWatch(std::unique_ptr<ZmqMonitor> monitor, LineSecurity::Kind security);
  ~HandshakeWatch();
  HandshakeWatch(const HandshakeWatch&) = delete;
  HandshakeWatch& operator=(const HandshakeWatch&) = delete;

  struct News {
    int ended_fd = -1;  // the descriptor of a connection that has ended
    std::string warning = {};
  };
  // Takes the news. The end of a connection is reported before the first message of another one
  // with the same descriptor.
  std::deque<News> TakeNews();
  // The descriptor is readable when there is news.
  int fd() const { return news_.fd(); }

  uint64_t turned_away() const { return turned_away_; }  // connections that were ended so far

 private:
  struct Connection {
    UniqueFd copy;  // names the connection even after ZeroMQ has closed its own descriptor
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
  EventFd wake_;                           // wakes the thread
  std::mutex mutex_;                       // guards the monitor and all below
  std::map<int, Connection> connections_;  // with handshakes that may be unfinished, by descriptor
  std::set<std::string> warned_;           // the reasons that were warned of
  bool is_over_ = false;
  std::thread thread_;  // last: it uses all members above
};

}  // namespace pando
