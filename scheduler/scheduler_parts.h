// SchedulerParts builds the parts of the scheduler core, each from those above it. Only the
// Scheduler has all of them. The table in scheduler.h describes the parts.
#pragma once

#include "scheduler/commands.h"
#include "scheduler/final_weights.h"
#include "scheduler/members/failures.h"
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
  RunProgress progress{options.next_row, plan, observer, views, outbox, faults, history};
  Members members{};
  RunMembers membership{options, plan,     views,   outbox,          phase,
                        faults,  progress, members, members_observer};
  ViewClaims claims{options, plan, views, outbox, phase, membership};
  Silences silences{plan, views, outbox, phase, progress, membership};
  EvaluationRounds evaluations{plan, observer, views, outbox, phase, history, progress, members};
  Snapshots snapshots{options, plan, observer, views, outbox, phase, history, progress, members};
  Ownership ownership{options.state, plan, views, evaluations};
  GradientComparison verification{options.state, plan,      views,    outbox,
                                  phase,         history,   progress, membership,
                                  evaluations,   snapshots, ownership};
  OwnerPlan owners{plan, views, phase, progress, members, silences, verification};
  SnapshotRequests requests{plan, outbox, phase, progress, members, snapshots};
  LastSnapshot last_snapshot{plan, views, outbox, phase, progress, snapshots, requests};
  Commands commands{plan,       views,       outbox,   phase,        progress,
                    membership, evaluations, requests, last_snapshot};
  FinalWeights final_weights{plan,   observer, views,     outbox,      phase,
                             faults, history,  snapshots, verification};
  ViewMaker view_maker{plan,     views,     phase,        membership, claims,
                       silences, snapshots, verification, owners};
  ViewPublisher publisher{options.seal, views, outbox, phase, faults, membership};
  Failures failures{plan, views, outbox, phase, faults, progress, membership, last_snapshot};
  StallWatch stalls{plan, views, outbox, phase, progress, membership};
};

}  // namespace pando
