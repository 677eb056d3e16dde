// Helping lets a worker that has done its part of a step help others. If it waits much longer than
// a step takes (StepClock), it asks every primary. When all have answered, it computes
// micro-batches that some of them lack, one for each computing thread, and asks again. The bits are
// the same; the first sum to arrive counts. Workers begin at different places, by rank. If a
// version is late because a server is silent, no worker computes anything, since all answers are
// needed. A member without work pulls nothing: it asks from time to time how far the run is, which
// measures a step, and pulls a version only to help. Used by the session. Threads: none.
#pragma once

#include <vector>

#include "worker/lifecycle.h"
#include "worker/questions.h"
#include "worker/step_clock.h"
#include "worker/steps.h"

namespace pando {

class Helping : SessionPart {
 public:
  // All outlive it.
  Helping(const SessionPart& part, const Lifecycle& lifecycle, Steps& steps, Questions& questions)
      : SessionPart(part), lifecycle_(lifecycle), steps_(steps), questions_(questions) {}

  void EnterView() {
    clock_.Disturb();
    Rest();
  }
  // The versions that are known everywhere may have changed.
  void OnVersions(Micros now) {
    if (clock_.OnVersion(now, versions_.everywhere())) Rest();
  }
  // All primaries have answered.
  void OnAnswered(Micros now);
  void Tick(Micros now);
  Micros NextDeadline() const { return !questions_.is_open() && IsWaiting() ? help_at_ : kNever; }

  // How long a step usually takes.
  const StepClock& clock() const { return clock_; }

 private:
  bool IsIdle() const;
  bool IsWaiting() const;
  void Rest() {
    is_helping_ = false;
    help_at_ = kNever;
  }
  std::vector<MicroBatch> Missing(Step step) const;
  bool IsForItsVerifier(Step step, MicroBatch m) const;
  size_t Offset(size_t count) const;

  const Lifecycle& lifecycle_;
  Steps& steps_;
  Questions& questions_;
  StepClock clock_;
  Micros help_at_ = kNever;  // when we have waited long enough; kNever while that is not known
  bool is_helping_ = false;  // the questions and the work under way are for stragglers
};

}  // namespace pando
