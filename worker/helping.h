// Helping: what a worker does when it has done its part of a step and waits for others. If that
// takes much longer than a step does (StepClock), it asks every primary, and when all have
// answered, computes micro-batches that some of them lack, one for each computing thread, then asks
// again. The bits are the same, the first ones win. Workers begin at different places, by rank. A
// version that is slow to come because a server is silent makes no worker compute anything: the
// answers of all are needed. A member without work pulls nothing: it asks now and then how far the
// run is, which is how it measures a step, and pulls a version only to help. Used by the session.
// Threads: none.
#pragma once

#include <vector>

#include "plan/job_plan.h"
#include "proto/view_member.h"
#include "worker/committed_versions.h"
#include "worker/lifecycle.h"
#include "worker/questions.h"
#include "worker/step_clock.h"
#include "worker/steps.h"

namespace pando {

class Helping {
 public:
  // All outlive it.
  Helping(const JobPlan& plan, const ViewMember& member, const Lifecycle& lifecycle,
          const CommittedVersions& versions, Steps& steps, Questions& questions)
      : plan_(plan),
        member_(member),
        lifecycle_(lifecycle),
        versions_(versions),
        steps_(steps),
        questions_(questions) {}

  void EnterView();
  // The versions that are known everywhere may have changed.
  void OnVersions(Micros now);
  // All primaries have answered.
  void OnAnswered(Micros now);
  void Tick(Micros now);
  Micros NextDeadline() const;

  // How long a step usually takes.
  const StepClock& clock() const { return clock_; }

 private:
  bool MayHelp() const;
  bool IsIdle() const;
  bool IsWaiting() const;
  void Rest();
  std::vector<MicroBatch> Missing(Step step) const;
  size_t Offset(size_t count) const;

  const JobPlan& plan_;
  const ViewMember& member_;
  const Lifecycle& lifecycle_;
  const CommittedVersions& versions_;
  Steps& steps_;
  Questions& questions_;
  StepClock clock_;
  Micros help_at_ = kNever;  // when we have waited long enough; kNever while that is not known
  bool is_helping_ = false;  // the questions and the work under way are for stragglers
};

}  // namespace pando
