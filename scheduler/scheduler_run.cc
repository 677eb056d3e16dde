// The scheduler's run: scalars, progress, evaluation (P31).
#include <algorithm>
#include <utility>

#include "scheduler/scheduler.h"

namespace pando {

void Scheduler::OnMessageOf(Micros, const Envelope& envelope, const ScalarsRequest& request) {
  if (request.first.value() % kScalarsPerBlock != 0) return;
  if (request.first.value() >= plan_.steps.step_count()) return;
  Send(envelope.sender, Scalars{request.first, schedule_.Block(request.first, kScalarsPerBlock)});
}

void Scheduler::OnMessageOf(Micros now, const Envelope& envelope, const Progress& progress) {
  if (envelope.view == view_.id && primary_lanes_.contains(envelope.sender)) {
    Version& committed = lane_committed_[envelope.sender];
    committed = std::max(committed, progress.committed);
    LearnCommitted(now);
  }
  // Rows below the first are known to an earlier life of ours, or are lost with a server.
  if (!progress.rows.empty()) next_row_ = std::max(next_row_, progress.rows.front().step);
  for (const StepMetrics& row : progress.rows) {
    if (row.step != next_row_ || row.step.value() >= plan_.steps.step_count()) continue;
    observer_.OnStepMetrics(now, row);
    next_row_ = NextStep(next_row_);
  }
  // What does not count is not acknowledged: it comes again under a later view.
  const bool counts = envelope.view == view_.id;
  Send(envelope.sender, ProgressAck{counts ? progress.committed : Version(0), next_row_});
}

void Scheduler::LearnCommitted(Micros now) {
  if (lane_committed_.size() != primary_lanes_.size()) return;
  Version lowest = plan_.steps.final_version();
  for (const auto& [lane, version] : lane_committed_) lowest = std::min(lowest, version);
  committed_ = std::max(committed_, lowest);
  if (committed_ > view_.restore.version) unreadable_ = {};
  pace_.OnCommitted(now, committed_);
  faults_.OnProgress(now, view_.id, committed_, committed_ == plan_.steps.final_version());
}

Micros Scheduler::TrainingTime(Micros now) const {
  if (phase_ == Phase::kGathering) return Micros(0);
  if (training_time_ != Micros(0)) return training_time_;
  const Micros evaluating = evaluation_ ? now - evaluation_->started_at : Micros(0);
  return now - training_since_ - evaluation_time_ - evaluating;
}

// ---- evaluation --------------------------------------------------------------------------------

void Scheduler::StartDueEvaluation(Micros now) {
  if (evaluation_ || rollback_) return;
  const Version final_version = plan_.steps.final_version();
  if (evaluated_ == final_version) {  // before a rollback, or another life of ours
    if (committed_ == final_version) StartCollecting(now);
    return;
  }
  const Version due = plan_.NextEvaluation(evaluated_);
  if (committed_ < due) return;
  if (due == final_version) training_time_ = TrainingTime(now);
  evaluation_ = Evaluation{due, {}, now};
  for (uint64_t first = 0; first < plan_.data.test_samples; first += kEvaluationSliceSamples) {
    const auto index = static_cast<uint32_t>(evaluation_->slices.size());
    const uint64_t last = std::min(first + kEvaluationSliceSamples, plan_.data.test_samples);
    evaluation_->slices.push_back({index, first, last, kUnknownNode, {}});
  }
  if (evaluation_->slices.empty()) FinishEvaluation(now);
}

// Each worker has one slice at a time, so faster workers take more.
void Scheduler::HandOutSlices(Micros) {
  if (!evaluation_ || !has_announced()) return;
  for (const Member* worker : members_.Workers()) {
    if (worker->is_draining) continue;
    const NodeId node = worker->peer.node;
    const auto is_busy = [&](const Slice& slice) { return slice.worker == node && !slice.result; };
    if (std::ranges::any_of(evaluation_->slices, is_busy)) continue;
    const auto slice = std::ranges::find(evaluation_->slices, kUnknownNode, &Slice::worker);
    if (slice == evaluation_->slices.end()) return;
    slice->worker = node;
    Send(worker->peer,
         Evaluate{evaluation_->version, slice->index, slice->first_sample, slice->last_sample});
  }
}

void Scheduler::ReleaseSlices(NodeId worker) {
  if (!evaluation_) return;
  for (Slice& slice : evaluation_->slices) {
    if (slice.worker == worker && !slice.result) slice.worker = kUnknownNode;
  }
}

void Scheduler::OnMessageOf(Micros now, const Envelope&, const EvaluationResult& result) {
  if (!evaluation_ || result.version != evaluation_->version) return;
  if (result.slice >= evaluation_->slices.size()) return;
  Slice& slice = evaluation_->slices[result.slice];
  if (result.sample_count != slice.last_sample - slice.first_sample || slice.result) return;
  slice.result = result;
  const bool all =
      std::ranges::all_of(evaluation_->slices, [](const Slice& s) { return s.result.has_value(); });
  if (all) FinishEvaluation(now);
}

void Scheduler::FinishEvaluation(Micros now) {
  EvaluationSummary summary{.version = evaluation_->version};
  for (const Slice& slice : evaluation_->slices) {
    summary.sample_count += slice.result->sample_count;
    summary.correct_count += slice.result->correct_count;
    summary.loss_sum += slice.result->loss_sum;
  }
  evaluation_time_ += now - evaluation_->started_at;
  evaluated_ = evaluation_->version;
  evaluation_.reset();
  evaluations_.push_back(summary);
  if (!Commit()) return;
  observer_.OnEvaluation(now, summary);
  repeat_at_ = now;  // release the pins
  if (evaluated_ == plan_.steps.final_version()) StartCollecting(now);
}

void Scheduler::OnMessageOf(Micros, const Envelope& envelope, const PinReleased& released) {
  Version& version =
      members_.Find(envelope.sender.incarnation)->released_pins[envelope.sender.lane];
  version = std::max(version, released.version);
}

}  // namespace pando
