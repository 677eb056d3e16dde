#include "scheduler/evaluations.h"

#include <algorithm>

namespace pando {

bool EvaluationRounds::StartDue(Micros now) {
  if (running_ || run_.rollback.is_pending()) return false;
  const EvaluationHistory& history = run_.history;
  const Version committed = run_.progress.committed();
  // All is evaluated: before a rollback, or in an earlier life of the scheduler.
  if (history.is_over()) return committed == history.final_version();
  const Version due = history.NextDue();
  if (committed < due) return false;
  running_ = Running{due, {}};
  const bool has_barrier = run_.plan.job.early_stop_patience > 0;  // P32
  run_.phase.OnEvaluationStarted(now, due < history.final_version() && !has_barrier);
  const uint64_t sample_count = run_.plan.data.test_samples;
  for (uint64_t first = 0; first < sample_count; first += kEvaluationSliceSamples) {
    const auto index = static_cast<uint32_t>(running_->slices.size());
    const uint64_t last = std::min(first + kEvaluationSliceSamples, sample_count);
    running_->slices.push_back({index, first, last, kUnknownNode, {}});
  }
  return running_->slices.empty() && Finish(now);
}

// Each worker has one slice at a time, so faster workers take more.
void EvaluationRounds::HandOutSlices() {
  if (!running_ || !run_.views.HasAnnounced()) return;
  for (const Member* worker : run_.members().Workers()) {
    if (worker->is_draining) continue;
    const NodeId node = worker->peer.node;
    const auto is_busy = [&](const Slice& slice) { return slice.worker == node && !slice.result; };
    if (std::ranges::any_of(running_->slices, is_busy)) continue;
    const auto slice = std::ranges::find(running_->slices, kUnknownNode, &Slice::worker);
    if (slice == running_->slices.end()) return;
    slice->worker = node;
    SendSlice(worker->peer, *slice);
  }
}

void EvaluationRounds::SendSlice(const PeerId& worker, const Slice& slice) {
  run_.outbox.Send(worker,
                   Evaluate{running_->version, slice.index, slice.first_sample, slice.last_sample});
}

const EvaluationRounds::Slice* EvaluationRounds::FindSlice(const EvaluationResult& result) const {
  const bool is_ours = running_ && result.version == running_->version;
  return is_ours && result.slice < running_->slices.size() ? &running_->slices[result.slice]
                                                           : nullptr;
}

bool EvaluationRounds::HasSlice(NodeId worker, const EvaluationResult& result) const {
  const Slice* slice = FindSlice(result);
  return slice != nullptr && slice->worker == worker;
}

bool EvaluationRounds::OnEvaluationResult(Micros now, const EvaluationResult& result) {
  if (FindSlice(result) == nullptr) return false;
  Slice& slice = running_->slices[result.slice];
  if (result.sample_count != slice.last_sample - slice.first_sample || slice.result) return false;
  if (!IsSound(result, run_.plan.data.class_count)) return false;
  slice.result = result;
  const bool all =
      std::ranges::all_of(running_->slices, [](const Slice& s) { return s.result.has_value(); });
  return all && Finish(now);
}

bool EvaluationRounds::Finish(Micros now) {
  EvaluationSummary summary{.version = running_->version};
  for (const Slice& slice : running_->slices)
    AddSlice(*slice.result, run_.plan.data.class_count, &summary);
  run_.phase.OnEvaluationDone(now);
  running_.reset();
  run_.history.Add(summary);
  // P25: the decision is in the journal, as the results are, before any process gets it.
  if (!run_.outbox.Commit()) return false;
  run_.observer.OnEvaluation(now, summary);
  run_.outbox.RepeatAt(now);  // release the pins
  TellDecision(now);
  return run_.history.is_over();
}

// P32: the run stops early, or more steps may be made.
void EvaluationRounds::TellDecision(Micros now) {
  if (run_.plan.job.early_stop_patience == 0) return;
  const EvaluationHistory& history = run_.history;
  const Version last = history.final_version();
  if (last != run_.plan.steps.final_version()) {
    return run_.outbox.TellNotable(
        now, "early-stop", "",
        "the run ends with version {}: {} evaluations in a row have not improved the best {} {} "
        "by more than {:g}",
        last.value(), run_.plan.job.early_stop_patience, run_.plan.job.evaluated_on(),
        EvaluatedValues(run_.plan.job).has_accuracy ? "accuracy" : "loss",
        run_.plan.job.early_stop_min_delta);
  }
  const Step next = StepReading(history.evaluated());
  const Step first(next.value() - next.value() % kScalarsPerBlock);
  for (const Member* server : run_.members().TakingPart(Role::kServer)) {
    for (const PeerId& lane : server->Peers()) run_.progress.SendScalars(lane, first);
  }
}

void EvaluationRounds::ReleaseSlices(NodeId worker) {
  if (!running_) return;
  for (Slice& slice : running_->slices) {
    if (slice.worker == worker && !slice.result) slice.worker = kUnknownNode;
  }
}

void EvaluationRounds::Forget(const Member& member) {
  ReleaseSlices(member.peer.node);
  released_.Forget(member.peer.incarnation);
}

void EvaluationRounds::RepeatTo(const PeerId& lane) {
  const Version evaluated = run_.history.evaluated();
  if (released_.Newest(lane) < evaluated) run_.outbox.Send(lane, ReleasePin{evaluated});
}

void EvaluationRounds::RepeatSlices() {
  if (!running_) return;
  for (const Slice& slice : running_->slices) {
    if (slice.result || slice.worker == kUnknownNode) continue;
    SendSlice(run_.members().Find(slice.worker)->peer, slice);
  }
}

void EvaluationRounds::StartGeneration() {
  running_.reset();
  run_.phase.OnEvaluationLost();
}

size_t EvaluationRounds::DropAfter(Micros now, Version last_good) {
  const size_t dropped = run_.history.DropAfter(last_good);
  if (running_ && running_->version > last_good) {
    run_.phase.OnEvaluationDone(now);
    running_.reset();
  }
  return dropped;
}

}  // namespace pando
