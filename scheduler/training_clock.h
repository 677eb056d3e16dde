// TrainingClock measures the time in which a run makes steps: from the first view on, without the
// evaluations beside which no steps are made.
#pragma once

#include <optional>

#include "common/clock.h"

namespace pando {

class TrainingClock {
 public:
  void Start(Micros now) { since_ = now; }
  // The run ends: the time stays as it is.
  void Stop(Micros now) {
    if (!stopped_) stopped_ = Time(now);
  }
  // A rollback makes the run train again. The time since Stop() counts as training.
  void Continue() { stopped_.reset(); }

  // `is_beside_steps`: the workers make steps during the evaluation.
  void OnEvaluationStarted(Micros now, bool is_beside_steps) {
    evaluating_since_ = now;
    is_standstill_ = !is_beside_steps;
  }
  void OnEvaluationDone(Micros now) {
    const Micros time = now - *evaluating_since_;
    evaluation_time_ += time;
    if (is_standstill_) standstill_ += time;
    evaluating_since_.reset();
  }
  // A rollback ends the evaluation. Its time counts as training.
  void OnEvaluationLost() { evaluating_since_.reset(); }

  // An evaluation runs, and no steps are made beside it.
  bool is_standing_still() const { return evaluating_since_ && is_standstill_; }
  Micros Time(Micros now) const {
    if (!since_ || stopped_) return stopped_.value_or(Micros(0));
    const Micros standing = is_standing_still() ? now - *evaluating_since_ : Micros(0);
    return now - *since_ - standstill_ - standing;
  }
  // The time of all evaluations that are done, beside steps or not.
  Micros evaluation_time() const { return evaluation_time_; }

 private:
  std::optional<Micros> since_;
  std::optional<Micros> stopped_;  // the time when the clock stopped
  Micros evaluation_time_{0};
  Micros standstill_{0};  // the part of evaluation_time_ without steps
  std::optional<Micros> evaluating_since_;
  bool is_standstill_ = false;  // no steps are made beside the running evaluation
};

}  // namespace pando
