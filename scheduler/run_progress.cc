#include "scheduler/run_progress.h"

#include <algorithm>

#include "common/mutation.h"
#include "scheduler/run_facts.h"

namespace pando {

RunProgress::RunProgress(RunFacts& run, Step next_row)
    : run_(run),
      schedule_(run.plan.job.optimizer, run.plan.job.schedule, run.plan.steps.step_count()),
      committed_(run.view().restore.version),
      next_row_(next_row) {}

bool RunProgress::OnProgress(Micros now, const Envelope& envelope, const Progress& progress) {
  const bool is_of_view = envelope.view == run_.view().id;
  bool have_all_reported = false;
  if (is_of_view && primary_lanes_.contains(envelope.sender)) {
    Version& committed = lane_committed_[envelope.sender];
    committed = std::max(committed, progress.committed);
    have_all_reported = LearnCommitted(now);
  }
  // An earlier life of the scheduler knows the rows below the first, or they are lost with a
  // server.
  if (!progress.rows.empty()) next_row_ = std::max(next_row_, progress.rows.front().step);
  for (const StepMetrics& row : progress.rows) {
    if (row.step != next_row_ || row.step.value() >= run_.plan.steps.step_count()) continue;
    run_.observer.OnStepMetrics(now, row);
    next_row_ = NextStep(next_row_);
  }
  // A report of another view is not acknowledged: the lane repeats it under the next view.
  run_.outbox.Send(envelope.sender,
                   ProgressAck{is_of_view ? progress.committed : Version(0), next_row_});
  return have_all_reported;
}

bool RunProgress::LearnCommitted(Micros now) {
  if (lane_committed_.size() != primary_lanes_.size()) return false;
  Version lowest = run_.plan.steps.final_version();
  for (const auto& [lane, version] : lane_committed_) lowest = std::min(lowest, version);
  committed_ = std::max(committed_, lowest);
  pace_.OnCommitted(now, committed_);
  run_.faults.OnProgress(now, run_.view().id, committed_,
                         committed_ == run_.history.final_version());
  return true;
}

void RunProgress::OnScalarsRequest(const PeerId& from, const ScalarsRequest& request) {
  if (request.first.value() % kScalarsPerBlock != 0) return;
  SendScalars(from, request.first);
}

Version RunProgress::ScalarsEnd() const {
  const bool is_open =
      run_.plan.job.early_stop_patience == 0 || Mutated(Mutation::kNoDecisionBarrier);
  if (is_open) return run_.plan.steps.final_version();
  return std::min(run_.history.final_version(), run_.history.NextDue());
}

void RunProgress::SendScalars(const PeerId& lane, Step first) {
  const uint64_t end = ScalarsEnd().value();
  if (first.value() >= end) return;
  const uint64_t count = std::min(kScalarsPerBlock, end - first.value());
  run_.outbox.Send(lane, Scalars{first, schedule_.Block(first, count)});
}

void RunProgress::OnView() {
  primary_lanes_.clear();
  lane_committed_.clear();
  for (const ShardPlacement& placement : run_.view().shards)
    primary_lanes_.insert(placement.primary);
}

void RunProgress::StartGeneration(Version restored) {
  committed_ = restored;
  step_at_start_ = Step(0);
}

Step RunProgress::StepReached() const { return std::max(StepReading(committed_), step_at_start_); }

}  // namespace pando
