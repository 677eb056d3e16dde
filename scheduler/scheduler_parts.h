// SchedulerParts builds the parts of the scheduler core, each from those above it. Only the
// Scheduler has all of them. The table in scheduler.h describes the parts.
#pragma once

#include "scheduler/commands.h"
#include "scheduler/final_weights.h"
#include "scheduler/members/failures.h"
#include "scheduler/members/votes.h"
#include "scheduler/stall_watch.h"
#include "scheduler/views/view_maker.h"
#include "scheduler/views/view_publisher.h"

namespace pando {

struct SchedulerParts {
  SchedulerOptions options;  // without its state, once the parts are built
  const JobPlan& plan;
  Journal& journal;
  RunObserver& observer;
  Outbox& sender;
  // No part calls these two before all parts are built.
  JournaledState& state;
  MembershipObserver& members_observer;

  ViewLedger views{options.state};
  JournaledOutbox outbox{{options.self, options.job}, journal, state, observer, sender, views};
  RunPhase phase{outbox, options.stop_grace, options.state ? options.state->is_completed : false};
  FaultLedger faults{options.started_at,
                     options.state ? options.state->faults : std::vector<FaultRecord>()};
  EvaluationHistory history{
      plan, options.state ? options.state->evaluations : std::vector<EvaluationSummary>()};
  const SchedulerPart shared{plan, views, outbox, phase};
  RunProgress progress{options.next_row, plan, observer, views, outbox, faults, history};
  Members members{};
  RunMembers membership{options, shared, faults, progress, members, members_observer};
  ViewClaims claims{options, shared, membership};
  Silences silences{shared, progress, membership};
  EvaluationRounds evaluations{shared, observer, history, progress, members};
  Snapshots snapshots{options, shared, observer, history, progress, members};
  Ownership ownership{options.state, plan, views, evaluations};
  GradientComparison verification{options.state, shared,      history,   progress,
                                  membership,    evaluations, snapshots, ownership};
  OwnerPlan owners{plan, views, phase, progress, members, silences, verification};
  SnapshotRequests requests{plan, outbox, phase, progress, members, snapshots};
  LastSnapshot last_snapshot{shared, progress, snapshots, requests};
  Commands commands{shared, progress, membership, evaluations, requests, last_snapshot};
  FinalWeights final_weights{shared, observer, faults, history, snapshots, verification};
  Votes votes{options.state, shared, membership};
  ViewMaker view_maker{plan,     views,     phase,        membership, claims,
                       silences, snapshots, verification, owners,     votes};
  ViewPublisher publisher{options.seal, shared, faults, membership};
  Failures failures{shared, faults, progress, membership, last_snapshot};
  StallWatch stalls{shared, progress, membership};
};

}  // namespace pando
