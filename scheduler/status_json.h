// StatusJson is the answer to `pando status`: the run's phase, progress, members and faults. Called
// by the scheduler's dispatcher.
#pragma once

#include <string>

#include "scheduler/placement/owner_plan.h"
#include "scheduler/view_maker.h"

namespace pando {

// The parts that know what the status shows.
struct StatusParts {
  const JobPlan& plan;
  const RunPhase& phase;
  const ViewLedger& views;
  const RunMembers& membership;
  const RunProgress& progress;
  const EvaluationHistory& history;
  const GradientComparison& verification;
  const Snapshots& snapshots;
  const OwnerPlan& owners;
  const ViewMaker& view_maker;
  const FaultLedger& faults;
};
std::string StatusJson(Micros now, const StatusParts& parts);

}  // namespace pando
