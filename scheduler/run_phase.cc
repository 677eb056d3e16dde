#include "scheduler/run_phase.h"

#include <utility>

namespace pando {

void RunPhase::StartTraining(Micros now) {
  phase_ = SchedulerPhase::kTraining;
  training_since_ = now;
}

void RunPhase::StartCollecting(Micros now) {
  phase_ = SchedulerPhase::kCollecting;
  if (!training_time_) training_time_ = TrainingTime(now);
}

void RunPhase::TrainAgain() {
  phase_ = SchedulerPhase::kTraining;
  training_time_.reset();
}

void RunPhase::End(Micros now, StopReason reason, std::string text) {
  if (is_ending()) return;
  if (!training_time_) training_time_ = TrainingTime(now);
  phase_ = SchedulerPhase::kStopping;
  stop_ = Stop{reason, std::move(text)};
  stop_at_ = now;
  outbox_.RepeatAt(now);  // sends it
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

Micros RunPhase::TrainingTime(Micros now) const {
  if (is_gathering()) return Micros(0);
  if (training_time_) return *training_time_;
  const Micros evaluating = evaluating_since_ ? now - *evaluating_since_ : Micros(0);
  return now - training_since_ - evaluation_time_ - evaluating;
}

void RunPhase::OnEvaluationDone(Micros now) {
  evaluation_time_ += now - *evaluating_since_;
  evaluating_since_.reset();
}

}  // namespace pando
