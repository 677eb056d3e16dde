// SessionWorker is a worker's part in a run with servers, from its welcome to the end. It connects
// the computing threads with the session, and the session with the transport. The worker process
// uses it, and so does embed/, where a program computes. Threads: the protocol thread. Owns: the
// session.
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

// The parts of a worker in a run; all outlive it.
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

// Concludes a worker's loop. `dialed` says why a peer cannot be reached, if one cannot.
Result<MembershipEnd> ConcludeWork(const Status& dialed, const NodeWatch& watch,
                                   const Lifecycle& life);

// Makes a worker's heartbeat with `content`. `session` is a Session or a GroupSession.
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

// ComputeNewsBox carries events from the computing threads to the protocol thread. Gradients wake
// it only when they fill a message. The end of a call always wakes it, and follows the call's
// gradients, so none of them waits for ever.
class ComputeNewsBox {
 public:
  struct News {
    ComputeTicket ticket;
    ComputeEvent event;
  };
  void Push(ComputeTicket ticket, ComputeEvent event);  // any thread
  // Returns a sink that calls Push. The box outlives it.
  ComputeSink sink() {
    return [this](ComputeTicket ticket, ComputeEvent event) { Push(ticket, std::move(event)); };
  }
  Mailbox<News>& mailbox() { return mailbox_; }

 private:
  std::atomic<size_t> unseen_bytes_ = 0;
  Mailbox<News> mailbox_;
};

// HostLines has the connections of one host's workers to the worker that sums for them (P6a), over
// a Unix socket in the abstract namespace, which only this host's processes reach. Threads: the
// transport's.
class HostLines {
 public:
  explicit HostLines(Transport& transport) : transport_(transport) {}  // outlives it

  // Lets the workers of this host connect, before a view can name this worker as their relay. If
  // that fails, they push separately.
  void Open(const PeerId& self);
  // Call it before the process becomes another incarnation.
  void Close();
  // Connects to the group's relay, if this process is not the relay. Returns the peers.
  std::set<PeerId> Connect(const HostGroup& group, const View& view, const PeerId& self);
  // Logs that the relay does not answer, or that it answers again.
  void Tell(bool is_given_up);

 private:
  Transport& transport_;
  PeerId relay_;  // the newest group's relay
  bool is_bound_ = false;
  PeerId given_up_;  // the relay that was given up
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
    ComputeNewsBox& news;  // the computer puts its events here
    HostLines& host_lines;
    BufferSource buffers = {};  // for gradients that are summed here for the host
    Ready ready = {};
    Timeline* timeline = nullptr;       // null: no timeline
    TimelineTrack* protocol = nullptr;  // this thread's track
    const StopFlag* stop = nullptr;     // ends it at once; null: no such flag
  };
  // Tell is called once per turn of the loop, for the heartbeat.
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
  TimelineSendProbe probe_;
  Session session_;
  std::optional<Stop> stop_;  // set when Run has returned
  // Not ok: a lane cannot be reached. It would get no gradients, and the run would hang.
  Status dialed_;
};

}  // namespace pando
