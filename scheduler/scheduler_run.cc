// The scheduler's run: scalars, progress, evaluation (P31).
#include <algorithm>
#include <utility>

#include "common/mutation.h"
#include "scheduler/scheduler.h"

namespace pando {

void Scheduler::OnMessageOf(Micros, const Envelope& envelope, const ScalarsRequest& request) {
  if (request.first.value() % kScalarsPerBlock != 0) return;
  SendScalars(envelope.sender, request.first);
}

// P32: no step is made whose version might not be, for an evaluation that is to come.
Version Scheduler::ScalarsEnd() const {
  const bool is_open = plan_.job.early_stop_patience == 0 || Mutated(Mutation::kNoDecisionBarrier);
  if (is_open) return plan_.steps.final_version();
  return std::min(final_version_, plan_.NextEvaluation(evaluated_));
}

// Of the block that begins with `first`, as far as steps may be made; more follows unasked.
void Scheduler::SendScalars(const PeerId& lane, Step first) {
  const uint64_t end = ScalarsEnd().value();
  if (first.value() >= end) return;
  const uint64_t count = std::min(kScalarsPerBlock, end - first.value());
  Send(lane, Scalars{first, schedule_.Block(first, count)});
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
  faults_.OnProgress(now, view_.id, committed_, committed_ == final_version_);
}

// A job's bad pictures are counted here and nowhere else, whichever worker reads them, and are in
// the journal before what was made in their place counts: their number is the job's, not the
// workers'.
void Scheduler::OnMessageOf(Micros now, const Envelope& envelope,
                            const PicturesReplaced& replaced) {
  PicturesReplacedAck ack;
  for (const BadPicture& picture : replaced.items) {
    ack.names.push_back(picture.name);
    if (phase_ >= Phase::kStopping || !bad_pictures_.Add(picture)) continue;
    has_changed_ = true;
    Tell(now, "bad-picture", "", bad_pictures_.TextOf(picture), /*is_notable=*/true);
  }
  Send(envelope.sender, std::move(ack));
  const Status verdict = bad_pictures_.Verdict();
  if (!verdict.ok()) End(now, StopReason::kFailed, verdict.message());
}

Micros Scheduler::TrainingTime(Micros now) const {
  if (phase_ == Phase::kGathering) return Micros(0);
  if (training_time_) return *training_time_;
  const Micros evaluating = evaluation_ ? now - evaluation_->started_at : Micros(0);
  return now - training_since_ - evaluation_time_ - evaluating;
}

// ---- evaluation --------------------------------------------------------------------------------

void Scheduler::StartDueEvaluation(Micros now) {
  if (evaluation_ || rollback_) return;
  if (evaluated_ == final_version_) {  // before a rollback, or another life of ours
    if (committed_ == final_version_) StartCollecting(now);
    return;
  }
  const Version due = plan_.NextEvaluation(evaluated_);
  if (committed_ < due) return;
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
  if (!IsSound(result, plan_.data.class_count)) return;
  slice.result = result;
  const bool all =
      std::ranges::all_of(evaluation_->slices, [](const Slice& s) { return s.result.has_value(); });
  if (all) FinishEvaluation(now);
}

void Scheduler::FinishEvaluation(Micros now) {
  EvaluationSummary summary{.version = evaluation_->version};
  for (const Slice& slice : evaluation_->slices)
    AddSlice(*slice.result, plan_.data.class_count, &summary);
  evaluation_time_ += now - evaluation_->started_at;
  evaluated_ = evaluation_->version;
  evaluation_.reset();
  if (!evaluations_.empty()) evaluations_.back().DropDetails();
  evaluations_.push_back(summary);
  Decide();
  if (!Commit()) return;
  observer_.OnEvaluation(now, summary);
  repeat_at_ = now;  // release the pins
  TellDecision(now);
  if (evaluated_ != final_version_) return;
  StartCollecting(now);
}

// P32: from the results alone, so that any life of the scheduler, and the serial trainer, decide
// alike. What is decided is in the journal as the results are, before anybody hears of it (P25).
void Scheduler::Decide() {
  final_version_ = StopVersion(plan_.job, evaluations_).value_or(plan_.steps.final_version());
}

void Scheduler::TellDecision(Micros now) {
  if (plan_.job.early_stop_patience == 0) return;
  if (final_version_ != plan_.steps.final_version()) {
    const std::string best = std::to_string(BestFirst(evaluations_).front().value());
    return Tell(now, "early-stop", "",
                "the run ends with version " + std::to_string(final_version_.value()) + ": " +
                    std::to_string(plan_.job.early_stop_patience) +
                    " evaluations have not bettered the test accuracy of version " + best,
                /*is_notable=*/true);
  }
  const Step next = StepReading(evaluated_);
  const Step first(next.value() - next.value() % kScalarsPerBlock);
  for (const auto& [node, member] : members_.all()) {
    if (member.role() != Role::kServer || !member.takes_part()) continue;
    for (const PeerId& lane : member.Peers()) SendScalars(lane, first);
  }
}

void Scheduler::OnMessageOf(Micros, const Envelope& envelope, const PinReleased& released) {
  Version& version =
      members_.Find(envelope.sender.incarnation)->released_pins[envelope.sender.lane];
  version = std::max(version, released.version);
}

}  // namespace pando
