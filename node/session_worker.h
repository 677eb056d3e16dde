// SessionWorker is a worker's part in a run with servers, from its welcome to the end. It connects
// the computing threads with the session, and the session with the transport. The worker process
// uses it, and so does embed/, where a program computes. Threads: the protocol thread. Owns: the
// session.
#pragma once

#include <functional>
#include <optional>

#include "net/view_guard.h"
#include "node/compute_news_box.h"
#include "node/node_join.h"
#include "node/node_watch.h"
#include "node/sum_lines.h"
#include "node/timeline/timeline_send_probe.h"
#include "train/queued_computer.h"
#include "worker/session.h"

namespace pando {

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

class SessionWorker {
 public:
  struct Parts {  // all outlive it
    Transport& transport;
    ShutdownRequests& shutdown;
    const HeartbeatSender& heartbeat;
    const Membership& membership;
    const JobPlan& plan;
    QueuedComputer& computer;
    ComputeNewsBox& news;  // the computer puts its events here
    SumLines& sum_lines;
    BufferSource buffers = {};  // for gradients that are summed here for others
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
