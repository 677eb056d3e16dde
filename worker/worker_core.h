// WorkerCore: what Session and GroupSession have in common. Lifecycle and GradientReports repeat
// messages until the scheduler reacts. Threads: none.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "plan/job_plan.h"
#include "proto/core.h"
#include "proto/dispatch.h"
#include "proto/view_member.h"
#include "train/compute_port.h"

namespace pando {

// The messages that no worker takes.
using WorkerIgnores =
    Ignored<Register, Welcome, Ready, Heartbeat, HeartbeatAck, ViewAck, Pull, ScalarsRequest,
            Scalars, Progress, ProgressAck, EvaluationResult, ReleasePin, PinReleased, Bye, Failure,
            StatusRequest, StatusReport, Root, RootAck, Chunk, ChunkAck, Synced, Divergence,
            PeerSilent, SnapshotStored, SnapshotAck, SnapshotAt, SnapshotAtAck, Leave,
            GradientHashes, Command, CommandReply, FaultNote, FaultNoteAck, RestoreFailed, Partials,
            PartialsPull>;

// How a worker enters a run and leaves it. Repeats Ready, Failure and Leave, and keeps the
// scheduler's Stop or Refused.
class Lifecycle {
 public:
  static constexpr Micros kRepeatInterval = std::chrono::milliseconds(200);

  // `compute` and `member` outlive it.
  Lifecycle(const Ready& ready, ComputePort& compute, ViewMember& member)
      : ready_(ready), compute_(compute), member_(member) {}

  // Acknowledges every Stop. The first one ends all work.
  void OnStop(const PeerId& from, const Stop& stop) {
    member_.Send(from, Bye{});
    if (!finished()) End(stop);
  }
  void OnRefused(const Refused& refused) {
    if (finished()) return;
    End({StopReason::kFailed, refused.reason});
    refusal_ = refused.kind;
  }
  void OnComputeFailed(const ComputeFailed& failed) {
    const StatusCode code = failed.status.code();
    const bool is_of_all = code == StatusCode::kInternal || code == StatusCode::kCorrupt;
    Fail({failed.status.message(), is_of_all ? FailureKind::kTraining : FailureKind::kMachine});
  }

  // Whether the view has this worker. Ready is repeated while it does not.
  void SetMember(bool is_member) { is_member_ = is_member; }
  // The worker cannot go on.
  void Fail(Failure failure) { failure_ = std::move(failure); }
  // The failure was of a generation that is over (P21).
  void ForgetFailure() { failure_.reset(); }
  // This process was asked to leave. It works on until the scheduler stops it.
  void Leave(Micros now) {
    is_leaving_ = true;
    report_at_ = now;
  }
  // The next report leaves at this time.
  void ReportAt(Micros at) { report_at_ = at; }

  void Tick(Micros now) {
    if (now < NextDeadline()) return;
    if (!is_member_) member_.SendToScheduler(ready_);
    if (failure_) member_.SendToScheduler(*failure_);
    if (is_leaving_) member_.SendToScheduler(pando::Leave{});
    report_at_ = now + kRepeatInterval;
  }
  Micros NextDeadline() const {
    return !is_member_ || failure_ || is_leaving_ ? report_at_ : kNever;
  }

  bool finished() const { return stop_.has_value(); }
  // How the scheduler ended the job.  REQUIRES: finished().
  const Stop& stop() const { return *stop_; }
  // How the scheduler refused this incarnation, if it did.
  const std::optional<RefusalKind>& refusal() const { return refusal_; }
  // Why the worker cannot go on, if it cannot.
  const std::optional<Failure>& failure() const { return failure_; }
  bool is_member() const { return is_member_; }
  bool is_leaving() const { return is_leaving_; }

 private:
  void End(Stop stop) {
    compute_.Abandon(Step(0));
    stop_ = std::move(stop);
  }

  const Ready ready_;
  ComputePort& compute_;
  ViewMember& member_;
  bool is_member_ = false;
  bool is_leaving_ = false;
  std::optional<Failure> failure_;
  Micros report_at_{0};
  std::optional<Stop> stop_;
  std::optional<RefusalKind> refusal_;
};

// The hashes of verified micro-batches (P41) that the scheduler does not know yet, gathered into
// messages.
class GradientReports {
 public:
  // While the scheduler is away the oldest give way to new ones (I6).
  static constexpr size_t kReportsMax = 1 << 16;
  static constexpr size_t kReportsPerMessageMax = 4096;
  static constexpr Micros kGatherInterval = std::chrono::milliseconds(20);
  static constexpr Micros kRepeatInterval = std::chrono::milliseconds(200);

  // A hash of 0 says that there is none to come; it takes no hash away.
  void Add(Micros now, const GradientHash& report) {
    const Micros due_at = now + kGatherInterval;
    due_at_ = hashes_.empty() ? due_at : std::min(due_at_, due_at);
    Report& known = hashes_[{report.step, report.micro_batch}];
    if (report.hash != 0) known = {report.hash, /*was_sent=*/false};
    if (hashes_.size() > kReportsMax) hashes_.erase(hashes_.begin());
  }
  // A step may be settled without our report of it: a report that was never sent is sent all the
  // same.
  void Acknowledge(Step below) {
    std::erase_if(hashes_, [&](const auto& entry) {
      return entry.first.first < below && entry.second.was_sent;
    });
  }
  void Clear() { hashes_.clear(); }
  // The message that is due, if one is; it is due again after a while.
  std::optional<GradientHashes> TakeDue(Micros now) {
    if (now < NextDeadline()) return std::nullopt;
    due_at_ = now + kRepeatInterval;
    GradientHashes message;
    for (auto& [key, report] : hashes_) {
      if (message.items.size() == kReportsPerMessageMax) break;
      message.items.push_back({key.first, key.second, report.hash});
      report.was_sent = true;
    }
    return message;
  }
  Micros NextDeadline() const { return hashes_.empty() ? kNever : due_at_; }
  size_t size() const { return hashes_.size(); }

 private:
  struct Report {
    uint64_t hash = 0;
    bool was_sent = false;
  };
  std::map<std::pair<Step, MicroBatch>, Report> hashes_;
  Micros due_at_ = kNever;
};

// How a worker's protocol core belongs to a run, in a run with servers or without. Owns: its
// member, and what it repeats.
class WorkerCore : public ProtocolCore {
 public:
  // This process was asked to leave: repeats Leave until the scheduler stops it. It works on
  // meanwhile.
  void Leave(Micros now) { lifecycle_.Leave(now); }

  bool finished() const { return lifecycle_.finished(); }
  // How the run ended, or why it cannot go on.
  const Lifecycle& lifecycle() const { return lifecycle_; }
  // The scheduler of today, and the view: what heartbeats are addressed to and say.
  const PeerId& scheduler() const { return member_.scheduler(); }
  const View& view() const { return member_.view(); }
  // Whether this message brings a view that the core will enter: its members are dialed first.
  bool WillEnter(const Envelope& envelope) const {
    return member_.WillEnter(envelope) && HasShards(std::get<ViewUpdate>(envelope.message).view);
  }

 protected:
  // `plan`, `compute` and `outbox` outlive the core. `ready`: repeated until a view has us.
  WorkerCore(const ViewMember::Identity& identity, const Ready& ready, const JobPlan& plan,
             ComputePort& compute, Outbox& outbox)
      : plan_(plan),
        compute_(compute),
        member_(identity, outbox),
        lifecycle_(ready, compute, member_) {}

  bool HasShards(const View& view) const {
    return view.shards.size() == plan_.shards.shard_count();
  }

  const JobPlan& plan_;
  ComputePort& compute_;
  ViewMember member_;
  Lifecycle lifecycle_;
};

}  // namespace pando
