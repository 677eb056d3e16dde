#include "server/lane_life.h"

#include "server/lane_limits.h"

namespace pando {

void LaneLife::OnStop(const Envelope& envelope, const Stop& stop) {
  member_.Send(envelope.sender, Bye{});
  if (!stop_) stop_ = stop;
}

void LaneLife::OnRefused(const Refused& refused) {
  if (stop_) return;
  refusal_ = refused.kind;
  stop_ = Stop{StopReason::kFailed, refused.reason};
}

void LaneLife::Tick(Micros now) {
  if (!is_joining() || now < ready_at_) return;
  member_.SendToScheduler(Ready{.kind = kind_});
  ready_at_ = now + kRetryInterval;
}

}  // namespace pando
