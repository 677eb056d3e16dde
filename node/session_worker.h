// SessionWorker: a worker's part in a run with servers, from its welcome to the end. It joins what
// computes to the session, and the session to the transport. Used by the worker process, and by
// embed/, where a program computes.
// Threads: the protocol thread. Owns: the session.
#pragma once

#include <atomic>
#include <functional>
#include <set>

#include "common/mailbox.h"
#include "net/view_guard.h"
#include "node/node_join.h"
#include "node/process_timeline.h"
#include "proto/assignment.h"
#include "train/trainer.h"
#include "worker/session.h"

namespace pando {

// What a worker's part in a run is made of; all outlive it.
struct WorkerParts {
  ZmqContext& context;
  Transport& transport;  // the worker's own, connected to the scheduler
  ShutdownRequests& shutdown;
  const HeartbeatSender& heartbeat;
  const Membership& membership;
  const std::string& scheduler_endpoint;
  uint32_t start_timeout_ms;
  Trainer::Parts trainer;
  uint32_t thread_count;
  Ready ready;
};

// How a worker's loop ended. `dialed`: why a peer cannot be reached, if so.
Result<MembershipEnd> ConcludeWork(const Status& dialed, const NodeWatch& watch,
                                   const Lifecycle& life);

// What a worker's heartbeats say, besides `content`. `session`: a session, or a group's.
HeartbeatState MakeHeartbeat(JobId job, const auto& session, const Heartbeat& content,
                             const Transport& transport, Micros now) {
  return {.job = job,
          .scheduler = session.scheduler(),
          .generation = session.view().generation,
          .view = session.view().id,
          .content = content,
          .waiting_since = now - std::chrono::milliseconds(content.waiting_ms),
          .lines = transport.CountLines()};
}

// Events on their way from the computing threads to the protocol thread. Gradients wake it only
// once they are worth a message. The end of a call always wakes it, and follows the call's
// gradients, so none of them waits for ever.
class ComputeNewsBox {
 public:
  struct News {
    ComputeTicket ticket;
    ComputeEvent event;
  };
  void Push(News news);  // any thread
  Mailbox<News>& mailbox() { return mailbox_; }

 private:
  std::atomic<size_t> unseen_bytes_ = 0;
  Mailbox<News> mailbox_;
};

// HostLines: the connections of one host's workers to the one that sums for them (P6a): a Unix
// socket in the abstract namespace, which only this host's processes reach. Threads: that of the
// transport.
class HostLines {
 public:
  explicit HostLines(Transport& transport) : transport_(transport) {}  // outlives it

  // Lets the workers of this host connect, before a view can name this one as their relay. If that
  // fails they push separately.
  void Open(const PeerId& self);
  // Call before the process becomes another incarnation.
  void Close();
  // Connects to the group's relay, if this process is not the relay. Returns the peers.
  std::set<PeerId> Connect(const HostGroup& group, const View& view, const PeerId& self);
  // Logs that the relay does not answer, and that it answers again.
  void Tell(bool is_given_up);

 private:
  Transport& transport_;
  PeerId relay_;  // of the newest group
  bool is_bound_ = false;
  PeerId given_up_;  // of the relays
};

class SessionWorker {
 public:
  struct Parts {  // all outlive it
    Transport& transport;
    ShutdownRequests& shutdown;
    const HeartbeatSender& heartbeat;
    const Membership& membership;
    const JobPlan& plan;
    WorkerComputer& computer;
    ComputeNewsBox& news;  // the computer's sink
    HostLines& host_lines;
    BufferSource buffers = {};  // of what is summed here for the host
    Ready ready = {};
    Timeline* timeline = nullptr;       // null: none is kept
    TimelineTrack* protocol = nullptr;  // of this thread
    const StopFlag* stop = nullptr;     // ends it at once; null: nothing does
  };
  // Called once per turn of the loop, for the heartbeat.
  using Tell = std::function<void(const Session& session, Micros now)>;
  explicit SessionWorker(const Parts& parts);

  // Works until the end.
  Result<MembershipEnd> Run(const Tell& tell);
  // How the run ended, if the scheduler or the run's folder said so.
  const std::optional<Stop>& stop() const { return stop_; }

 private:
  void TakeNews(Micros now);
  void CheckSharing();
  void Connect(const View& view);
  void LogTraffic() const;

  const Parts parts_;
  ViewGuard views_;
  TransportOutbox transport_outbox_;
  TimelineOutbox outbox_;
  Session session_;
  std::optional<Stop> stop_;  // once Run has returned
  // Not ok: some lane cannot be reached. It would get no gradients, and the run would hang.
  Status dialed_;
};

}  // namespace pando
