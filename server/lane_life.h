// LaneLife is the begin and the end of a lane. Lane 0 sends Ready for its process until a view
// names it. The scheduler ends the job (Stop) or this life of the lane (Refused).
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "proto/view_member.h"
#include "server/lane_limits.h"

namespace pando {

class LaneLife {
 public:
  // `kind` is for the Ready. `member` outlives the part.
  LaneLife(ViewMember& member, std::string kind) : member_(member), kind_(std::move(kind)) {}

  void OnStop(const Envelope& envelope, const Stop& stop) {
    member_.Send(envelope.sender, Bye{});
    if (!stop_) stop_ = stop;
  }
  void OnRefused(const Refused& refused) {
    if (stop_) return;
    refusal_ = refused.kind;
    stop_ = Stop{StopReason::kFailed, refused.reason};
  }

  bool finished() const { return stop_.has_value(); }
  const Stop& stop() const { return *stop_; }  // REQUIRES: finished()
  const std::optional<RefusalKind>& refusal() const { return refusal_; }

  void Tick(Micros now) {
    if (now < NextDeadline()) return;
    member_.SendToScheduler(Ready{.kind = kind_});
    ready_at_ = now + kRetryInterval;
  }
  Micros NextDeadline() const { return is_joining() ? ready_at_ : kNever; }

 private:
  bool is_joining() const { return member_.self().lane == 0 && !member_.has_view(); }

  ViewMember& member_;
  const std::string kind_;
  Micros ready_at_{0};  // when to repeat Ready
  std::optional<Stop> stop_;
  std::optional<RefusalKind> refusal_;
};

}  // namespace pando
