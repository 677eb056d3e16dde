#include "scheduler/run_phase.h"

#include <utility>

namespace pando {
namespace {

// A rollback waits this long for the job's number of servers: a supervisor may restart one.
constexpr Micros kRestartGrace = std::chrono::seconds(1);

}  // namespace

void RunPhase::StartTraining(Micros now) {
  phase_ = SchedulerPhase::kTraining;
  clock_.Start(now);
}

void RunPhase::StartCollecting(Micros now) {
  phase_ = SchedulerPhase::kCollecting;
  clock_.Stop(now);
}

void RunPhase::PlanRollback(Micros now, const std::string& reason) {
  if (rollback_) return;
  rollback_ = Rollback{reason, now};
  outbox_.TellNotable(now, "lost", "", "{}: the run restarts from its last snapshot", reason);
}

bool RunPhase::MayRollBack(Micros now, size_t server_count, uint32_t wanted) const {
  if (!rollback_) return false;
  const bool has_waited = now - rollback_->since >= kRestartGrace;
  if (server_count == 0 || (server_count < wanted && !has_waited)) return false;
  return now >= rollback_->not_before;
}

std::string RunPhase::RollBack() {
  phase_ = SchedulerPhase::kTraining;
  clock_.Continue();
  return std::exchange(rollback_, std::nullopt)->reason;
}

void RunPhase::End(Micros now, StopReason reason, std::string text) {
  if (is_ending()) return;
  clock_.Stop(now);
  phase_ = SchedulerPhase::kStopping;
  stop_ = Stop{reason, std::move(text)};
  stop_at_ = now;
  outbox_.RepeatAt(now);  // sends Stop at once
}

void RunPhase::EndForLostMember(Micros now, std::string text) {
  has_lost_member_ = true;
  End(now, StopReason::kFailed, std::move(text));
}

void RunPhase::FinishWhenLeft(Micros now, bool have_all_left) {
  if (phase_ != SchedulerPhase::kStopping) return;
  if (have_all_left || now - stop_at_ >= stop_grace_) phase_ = SchedulerPhase::kFinished;
}

Micros RunPhase::NextDeadline() const {
  return phase_ == SchedulerPhase::kStopping ? stop_at_ + stop_grace_ : kNever;
}

}  // namespace pando
