// RunProgress keeps the version that all shards have committed and measures the pace of the run. It
// sends the lanes the scalars of the steps that may be made.
#pragma once

#include <cmath>
#include <map>
#include <set>

#include "optim/schedule.h"
#include "scheduler/evaluation/evaluation_history.h"
#include "scheduler/journaled_outbox.h"
#include "scheduler/members/fault_ledger.h"
#include "scheduler/views/view_ledger.h"

namespace pando {

// StepPace estimates how many steps the run makes in a given time, from the lanes' reports. Parts
// use it to name a step that is a little ahead.
class StepPace {
 public:
  void OnCommitted(Micros now, Version committed) {
    const Micros since = now - at_;
    if (at_ != Micros(0) && since < kInterval) return;
    if (at_ != Micros(0) && committed >= committed_) {
      const double steps = static_cast<double>(committed.value() - committed_.value());
      steps_per_us_ = (steps_per_us_ + steps / static_cast<double>(since.count())) / 2;
    }
    at_ = now;
    committed_ = committed;
  }
  // How long a step takes; 0: not known.
  Micros UsualStep() const {
    return steps_per_us_ <= 0 ? Micros(0) : Micros(static_cast<int64_t>(1 / steps_per_us_));
  }
  // At least 1.
  uint64_t StepsWithin(Micros time) const {
    return 1 + static_cast<uint64_t>(std::ceil(steps_per_us_ * static_cast<double>(time.count())));
  }

 private:
  static constexpr Micros kInterval = std::chrono::milliseconds(50);
  Micros at_{0};
  Version committed_;
  double steps_per_us_ = 0;
};

class RunProgress {
 public:
  // `next_row`: OnStepMetrics continues from here.
  RunProgress(Step next_row, const JobPlan& plan, RunObserver& observer, const ViewLedger& views,
              JournaledOutbox& outbox, FaultLedger& faults, const EvaluationHistory& history);

  // Handles a lane's report.  Returns true if every primary's lane has reported under the view.
  bool OnProgress(Micros now, const Envelope& envelope, const Progress& progress);
  void OnScalarsRequest(const PeerId& from, const ScalarsRequest& request);
  // Sends the scalars of the block that begins with `first`, as far as steps may be made. The rest
  // of the block follows with a later decision.
  void SendScalars(const PeerId& lane, Step first);
  // Returns the last version that may be made so far (P32).
  Version ScalarsEnd() const;

  // Waits for the reports of the new view's primaries.
  void OnView();
  // Begins a generation from this version.
  void StartGeneration(Version restored);
  // Notes that the scheduler has restarted while the run was training.
  void OnRestart() { step_at_start_ = next_row_; }

  // The version that every shard has committed, as far as the views of this generation have shown.
  Version committed() const { return committed_; }
  // The lowest incomplete step, for people.
  Step StepReached() const;
  // How many steps the run makes in `time`; at least 1.
  uint64_t StepsWithin(Micros time) const { return pace_.StepsWithin(time); }
  // How long a step takes; 0: not known.
  Micros UsualStep() const { return pace_.UsualStep(); }
  // The observer has the metric rows below it.
  Step next_row() const { return next_row_; }
  // The newest version that the lane of the last metric rows has committed. Rows arrive in parts,
  // so next_row() may be lower.
  Version made() const { return made_; }

 private:
  bool HasOwnRows(const Envelope& envelope, const Progress& progress) const;
  void TakeRows(Micros now, const Progress& progress);
  void CountReport(const PeerId& lane, Version committed);
  bool LearnCommitted(Micros now);

  const JobPlan& plan_;
  RunObserver& observer_;
  const ViewLedger& views_;
  JournaledOutbox& outbox_;
  FaultLedger& faults_;
  const EvaluationHistory& history_;
  const Schedule schedule_;
  std::set<PeerId> primary_lanes_;            // the lanes that are primaries in the view
  std::map<PeerId, Version> lane_committed_;  // the reports of the primaries' lanes under the view
  std::map<Version, size_t> lane_counts_;     // of lane_committed_, by version
  Version committed_;
  Version made_;
  StepPace pace_;
  Step next_row_;
  Step step_at_start_;  // roughly the step at which the scheduler's last life ended
};

}  // namespace pando
