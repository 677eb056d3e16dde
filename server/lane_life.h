// LaneLife: how a lane begins and ends. Lane 0 tells the scheduler that its process is ready, until
// a view names it; the scheduler ends the job, or this life of the lane.
// Threads: none.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "proto/view_member.h"

namespace pando {

class LaneLife {
 public:
  // `kind`: of the Ready. `member` outlives the part.
  LaneLife(ViewMember& member, std::string kind) : member_(member), kind_(std::move(kind)) {}

  void OnStop(const Envelope& envelope, const Stop& stop);
  void OnRefused(const Refused& refused);

  bool finished() const { return stop_.has_value(); }
  const Stop& stop() const { return *stop_; }  // REQUIRES: finished()
  const std::optional<RefusalKind>& refusal() const { return refusal_; }

  void Tick(Micros now);
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
