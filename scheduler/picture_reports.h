// PictureReports counts the run's pictures that cannot be decoded. Several workers may
// report the same picture: their number is the job's, not the workers'. Part of the scheduler
// core. Threads: none.
#pragma once

#include <optional>

#include "plan/job_plan.h"
#include "scheduler/journaled_outbox.h"
#include "scheduler/run_phase.h"

namespace pando {

class PictureReports {
 public:
  // `state`: what the journal has, if there is one. `outbox` and `phase` outlive this.
  PictureReports(const JobPlan& plan, const std::optional<SchedulerState>& state,
                 JournaledOutbox& outbox, RunPhase& phase);

  // The journal has the pictures before anything made in their place counts.
  void OnPicturesReplaced(Micros now, const PeerId& from, const PicturesReplaced& replaced);

  const BadPictures& pictures() const { return pictures_; }

 private:
  JournaledOutbox& outbox_;
  RunPhase& phase_;
  BadPictures pictures_;
};

}  // namespace pando
