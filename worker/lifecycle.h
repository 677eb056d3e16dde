// Lifecycle brings a worker into a run and out of it. It repeats Ready, Failure and Leave, and
// keeps the scheduler's Stop or Refused. Threads: none.
#pragma once

#include <optional>
#include <utility>

#include "proto/view_member.h"
#include "train/compute_port.h"

namespace pando {

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

  // Notes whether the view has this worker. Ready is repeated while it does not.
  void SetMember(bool is_member) { is_member_ = is_member; }
  // The worker cannot go on.
  void Fail(Failure failure) { failure_ = std::move(failure); }
  // The failure belongs to a generation that is over (P21).
  void ForgetFailure() { failure_.reset(); }
  // This process was asked to leave. It continues to work until the scheduler stops it.
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

}  // namespace pando
