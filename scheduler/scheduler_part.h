// SchedulerPart is the base of most parts of the scheduler: it has references to what they share.
// All of them outlive the part. Threads: none.
#pragma once

#include "plan/job_plan.h"
#include "scheduler/journaled_outbox.h"
#include "scheduler/run_phase.h"
#include "scheduler/views/view_ledger.h"

namespace pando {

class SchedulerPart {
 public:
  SchedulerPart(const JobPlan& plan, ViewLedger& views, JournaledOutbox& outbox, RunPhase& phase)
      : plan_(plan), views_(views), outbox_(outbox), phase_(phase) {}

 protected:
  const JobPlan& plan_;
  ViewLedger& views_;
  JournaledOutbox& outbox_;
  RunPhase& phase_;
};

}  // namespace pando
