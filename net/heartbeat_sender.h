// HeartbeatSender tells the scheduler that this process lives and what it does. It has its own
// thread and socket, so that a computing core or a busy loop does not look dead.
#pragma once

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "net/stop_flag.h"
#include "net/transport.h"

namespace pando {

// The content of the next heartbeats. Times are those of common/clock.h.
struct HeartbeatState {
  JobId job;
  PeerId scheduler{kSchedulerNode, {}, 0};  // the current one; incarnation 0: any
  uint32_t generation = 0;
  ViewId view;
  Heartbeat content;                    // except the fields below, traffic, log and schedulers
  std::optional<Micros> waiting_since;  // the start of the wait for parameters
  Transport::LineCounts lines = {};     // of dialed connections
};

// OwnLog reads the last line that was written to a descriptor since this object was created, if the
// descriptor is a file: this process's standard error. The line says why a process cannot join yet.
class OwnLog {
 public:
  explicit OwnLog(int fd = STDERR_FILENO);
  // Returns one line of at most kLogLineBytesMax bytes, or "". Reads only new bytes.
  const std::string& LastLine();

 private:
  const int fd_;
  std::string line_;
  uint64_t read_size_ = 0;  // the file's size at the last read
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

  // Starts the thread, which sends the first heartbeat at once. REQUIRES: it is not started yet.
  Status Start();
  void Update(const HeartbeatState& state);  // any thread
  // Returns when the scheduler last acknowledged a heartbeat; before the first acknowledgement,
  // when the sender started.
  Micros answered_at() const { return answered_at_.load(); }  // any thread
  // Whether the scheduler has answered that this process is not a member any more.
  bool is_given_up() const { return is_given_up_; }  // any thread

 private:
  void Run();
  void OnAck(const HeartbeatAck& ack);
  Envelope Compose(Micros now, const std::string& log_line);

  const Options options_;
  ZmqContext& context_;
  Transport transport_;           // only thread_ uses it once that runs
  OwnLog log_;                    // as transport_
  uint64_t schedulers_hash_ = 0;  // as log_
  StopFlag stop_;
  std::mutex mutex_;  // guards state_
  HeartbeatState state_;
  std::atomic<Micros> answered_at_{Micros(0)};
  std::atomic<bool> is_given_up_{false};
  std::thread thread_;
};

}  // namespace pando
