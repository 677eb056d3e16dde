#include "worker/lifecycle.h"

#include <utility>

namespace pando {

void Lifecycle::OnStop(const PeerId& from, const Stop& stop) {
  member_.Send(from, Bye{});
  if (!finished()) End(stop);
}

void Lifecycle::OnRefused(const Refused& refused) {
  if (finished()) return;
  End(Stop{StopReason::kFailed, refused.reason});
  refusal_ = refused.kind;
}

void Lifecycle::End(Stop stop) {
  compute_.Abandon(Step(0));
  stop_ = std::move(stop);
}

void Lifecycle::OnComputeFailed(const ComputeFailed& failed) {
  const StatusCode code = failed.status.code();
  const bool is_of_all = code == StatusCode::kInternal || code == StatusCode::kCorrupt;
  Fail({failed.status.message(), is_of_all ? FailureKind::kTraining : FailureKind::kMachine});
}

void Lifecycle::Leave(Micros now) {
  is_leaving_ = true;
  report_at_ = now;
}

void Lifecycle::Tick(Micros now) {
  if (now < NextDeadline()) return;
  if (!is_member_) member_.SendToScheduler(ready_);
  if (failure_) member_.SendToScheduler(*failure_);
  if (is_leaving_) member_.SendToScheduler(pando::Leave{});
  report_at_ = now + kRepeatInterval;
}

}  // namespace pando
