// Lifecycle: how a worker enters a run and leaves it. It repeats Ready, Failure and Leave until the
// scheduler reacts, and keeps the scheduler's Stop or Refused. Used by Session and GroupSession.
// Threads: none.
#pragma once

#include <optional>

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
  void OnStop(const PeerId& from, const Stop& stop);
  void OnRefused(const Refused& refused);
  void OnComputeFailed(const ComputeFailed& failed);

  // Whether the view has this worker. Ready is repeated while it does not.
  void SetMember(bool is_member) { is_member_ = is_member; }
  // The worker cannot go on.
  void Fail(Failure failure) { failure_ = std::move(failure); }
  // The failure was of a generation that is over (P21).
  void ForgetFailure() { failure_.reset(); }
  // This process was asked to leave. It works on until the scheduler stops it.
  void Leave(Micros now);
  // The next report leaves at this time.
  void ReportAt(Micros at) { report_at_ = at; }

  void Tick(Micros now);
  Micros NextDeadline() const { return HasReport() ? report_at_ : kNever; }

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
  bool HasReport() const { return !is_member_ || failure_ || is_leaving_; }
  void End(Stop stop);

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
