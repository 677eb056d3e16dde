#include "scheduler/run_progress.h"

#include <algorithm>
#include <utility>

#include "proto/ownership.h"

namespace pando {

RunProgress::RunProgress(Step next_row, const JobPlan& plan, RunObserver& observer,
                         const ViewLedger& views, JournaledOutbox& outbox, FaultLedger& faults,
                         const EvaluationHistory& history)
    : plan_(plan),
      observer_(observer),
      views_(views),
      outbox_(outbox),
      faults_(faults),
      history_(history),
      schedule_(plan.job.optimizer, plan.job.schedule, plan.steps.step_count()),
      committed_(views.view().restore.version),
      next_row_(next_row) {}

bool RunProgress::OnProgress(Micros now, const Envelope& envelope, const Progress& progress) {
  if (progress.committed > plan_.steps.final_version()) return false;
  const bool is_of_view = envelope.view == views_.view().id;
  bool have_all_reported = false;
  if (is_of_view && primary_lanes_.contains(envelope.sender)) {
    CountReport(envelope.sender, progress.committed);
    have_all_reported = LearnCommitted(now);
  }
  if (HasOwnRows(envelope, progress)) TakeRows(now, progress);
  // A report of another view is not acknowledged: the lane repeats it under the next view.
  outbox_.Send(envelope.sender,
               ProgressAck{is_of_view ? progress.committed : Version(0), next_row_});
  return have_all_reported;
}

// P46. Returns whether the rows are of committed versions and of the metric shard's primary.
bool RunProgress::HasOwnRows(const Envelope& envelope, const Progress& progress) const {
  if (progress.rows.empty() && envelope.view != views_.view().id) return false;
  const Step end = StepUpdating(progress.committed);
  return IsPrimary(views_.view(), plan_.metric_shard(), envelope.sender) &&
         std::ranges::all_of(progress.rows, [&](const auto& row) { return row.step < end; });
}

// P25. The lane has no row below the first one: an earlier life acknowledged it, or it is lost.
void RunProgress::TakeRows(Micros now, const Progress& progress) {
  next_row_ = std::max(next_row_, progress.rows.empty() ? StepUpdating(progress.committed)
                                                        : progress.rows.front().step);
  made_ = progress.committed;
  for (const StepMetrics& row : progress.rows) {
    if (row.step != next_row_) continue;
    observer_.OnStepMetrics(now, row);
    next_row_ = NextStep(next_row_);
  }
}

void RunProgress::CountReport(const PeerId& lane, Version committed) {
  const auto [report, is_first] = lane_committed_.try_emplace(lane, committed);
  if (!is_first) {
    if (committed <= report->second) return;
    const auto count = lane_counts_.find(std::exchange(report->second, committed));
    if (--count->second == 0) lane_counts_.erase(count);
  }
  ++lane_counts_[committed];
}

bool RunProgress::LearnCommitted(Micros now) {
  if (lane_committed_.size() != primary_lanes_.size()) return false;
  committed_ = std::max(committed_, lane_counts_.begin()->first);
  pace_.OnCommitted(now, committed_);
  faults_.OnProgress(now, views_.view().id, committed_, committed_ == history_.final_version());
  return true;
}

void RunProgress::OnScalarsRequest(const PeerId& from, const ScalarsRequest& request) {
  if (request.first.value() % kScalarsPerBlock != 0) return;
  SendScalars(from, request.first);
}

Version RunProgress::ScalarsEnd() const {
  if (!plan_.job.may_stop_early()) return plan_.steps.final_version();
  return std::min(history_.final_version(), history_.NextDue());
}

void RunProgress::SendScalars(const PeerId& lane, Step first) {
  const uint64_t end = ScalarsEnd().value();
  if (first.value() >= end) return;
  const uint64_t count = std::min(kScalarsPerBlock, end - first.value());
  outbox_.Send(lane, Scalars{first, schedule_.Block(first, count)});
}

void RunProgress::OnView() {
  primary_lanes_.clear();
  lane_committed_.clear();
  lane_counts_.clear();
  for (const ShardPlacement& placement : views_.view().shards)
    primary_lanes_.insert(placement.primary);
}

void RunProgress::StartGeneration(Version restored) {
  committed_ = restored;
  step_at_start_ = Step(0);
}

Step RunProgress::StepReached() const { return std::max(StepUpdating(committed_), step_at_start_); }

}  // namespace pando
