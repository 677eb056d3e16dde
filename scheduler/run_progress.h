// RunProgress knows which version all shards have committed, and how fast the run is. It sends the
// lanes the scalars of the steps that may be made. Part of the scheduler core. Threads: none.
#pragma once

#include <map>
#include <set>

#include "optim/schedule.h"
#include "scheduler/journaled_outbox.h"
#include "scheduler/ledgers/evaluation_history.h"
#include "scheduler/ledgers/fault_ledger.h"
#include "scheduler/ledgers/step_pace.h"

namespace pando {

class RunProgress {
 public:
  // `next_row`: OnStepMetrics continues from here. All references outlive this.
  RunProgress(const JobPlan& plan, const View& view, const EvaluationHistory& history,
              Step next_row, FaultLedger& faults, RunObserver& observer, JournaledOutbox& outbox);

  // Returns true if every primary's lane has reported under the view.
  bool OnProgress(Micros now, const Envelope& envelope, const Progress& progress);
  void OnScalarsRequest(const PeerId& from, const ScalarsRequest& request);
  // Sends the scalars of the block that begins with `first`, as far as steps may be made. The rest
  // of the block follows with a later decision.
  void SendScalars(const PeerId& lane, Step first);
  // Steps from here on must not be made yet (P32).
  Version ScalarsEnd() const;

  // The view has changed: its primaries report again.
  void OnView();
  // A generation begins from this version.
  void StartGeneration(Version restored);
  // The scheduler has restarted while the run was training.
  void OnRestart() { step_at_start_ = next_row_; }

  // Committed by every shard; known under some view of the generation.
  Version committed() const { return committed_; }
  // The lowest incomplete step, for people.
  Step StepReached() const;
  // How many steps the run makes in `time`; at least 1.
  uint64_t StepsWithin(Micros time) const { return pace_.StepsWithin(time); }
  // Metric rows below it are with the observer.
  Step next_row() const { return next_row_; }

 private:
  bool LearnCommitted(Micros now);

  const JobPlan& plan_;
  const View& view_;
  const EvaluationHistory& history_;
  FaultLedger& faults_;
  RunObserver& observer_;
  JournaledOutbox& outbox_;
  const Schedule schedule_;
  std::set<PeerId> primary_lanes_;            // of the view
  std::map<PeerId, Version> lane_committed_;  // of the lanes that have reported under the view
  Version committed_;
  StepPace pace_;
  Step next_row_;
  Step step_at_start_;  // about where the scheduler's last life ended
};

}  // namespace pando
