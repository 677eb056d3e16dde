// HeartbeatSender tells the scheduler that this process lives and what it does. It has a thread and
// a socket, so that a core that computes or a loop that is busy does not look dead.
#pragma once

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "net/event_loop.h"
#include "net/transport.h"

namespace pando {

// The content of the next heartbeats. Times are of common/clock.h.
struct HeartbeatState {
  JobId job;
  PeerId scheduler{kSchedulerNode, {}, 0};  // the current one; incarnation 0: any
  uint32_t generation = 0;
  ViewId view;
  Heartbeat content;                    // except what follows, traffic and log
  std::optional<Micros> waiting_since;  // when the wait for parameters began
  Transport::LineCounts lines = {};     // of dialed connections
};

// OwnLog reads the last line that was written to a descriptor since this object was made, if that
// is a file: this process's standard error. Earlier lines say why the process could not join yet.
class OwnLog {
 public:
  explicit OwnLog(int fd = STDERR_FILENO);
  // At most kLogLineBytesMax bytes, on one line; empty if there is none. Reads what is new.
  const std::string& LastLine();

 private:
  const int fd_;
  std::string line_;
  uint64_t read_size_ = 0;  // the file's when it was read
};

class HeartbeatSender {
 public:
  struct Options {
    PeerId self;
    std::string scheduler_endpoint;
    Micros interval = std::chrono::milliseconds(250);
  };
  // `context` outlives the sender.
  HeartbeatSender(ZmqContext& context, const Options& options, const HeartbeatState& state);
  ~HeartbeatSender();  // stops the thread, without waiting for the next heartbeat

  // The first heartbeat goes at once.  REQUIRES: not started yet.
  Status Start();
  void Update(const HeartbeatState& state);  // any thread
  // When the scheduler last acknowledged a heartbeat. Before the first acknowledgement: when this
  // started.
  Micros answered_at() const { return answered_at_.load(); }  // any thread

 private:
  void Run();
  Envelope Compose(Micros now, const std::string& log_line);

  const Options options_;
  ZmqContext& context_;
  Transport transport_;  // used by the thread alone once it runs
  OwnLog log_;           // the same
  StopFlag stop_;
  std::mutex mutex_;  // guards state_
  HeartbeatState state_;
  std::atomic<Micros> answered_at_{Micros(0)};
  std::thread thread_;
};

}  // namespace pando
