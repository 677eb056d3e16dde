#include "scheduler/evaluation/evaluation_rounds.h"

#include <algorithm>
#include <string>
#include <utility>

namespace pando {

bool EvaluationRounds::StartDue(Micros now) {
  if (running_ || phase_.is_rolling_back()) return false;
  const Version committed = progress_.committed();
  // Every due version was evaluated before a rollback, or in an earlier life of the scheduler.
  if (history_.is_over()) return committed == history_.final_version();
  const Version due = history_.NextDue();
  if (committed < due) return false;
  running_ = Running{due, {}, {.version = due}};
  const bool has_barrier = plan_.job.may_stop_early();  // P32
  phase_.clock().OnEvaluationStarted(now, due < history_.final_version() && !has_barrier);
  const uint64_t sample_count = plan_.data.test_samples;
  const uint64_t slice_samples = plan_.EvaluationSliceSamples();
  for (uint64_t first = 0; first < sample_count; first += slice_samples) {
    const auto index = static_cast<uint32_t>(running_->slices.size());
    const uint64_t last = std::min(first + slice_samples, sample_count);
    running_->slices.push_back({.index = index, .first_sample = first, .last_sample = last});
  }
  return Advance(now);
}

// Each worker has one slice at a time, so faster workers take more.
void EvaluationRounds::HandOutSlices() {
  if (!running_ || !views_.HasAnnounced()) return;
  for (const Member* worker : members_.Workers()) {
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
  const bool is_report = slice.part == EvaluationPart::kReport;
  outbox_.Send(worker,
               Evaluate{running_->version, slice.index, slice.first_sample, slice.last_sample,
                        slice.part, is_report ? running_->summary.sums : std::vector<double>()});
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
  if (!IsSound(result, plan_.data.class_count)) return false;
  slice.result = result;
  return Advance(now);
}

bool EvaluationRounds::IsAnswered() const {
  return std::ranges::all_of(running_->slices, [](const Slice& s) { return s.result.has_value(); });
}

// P31a. The pin stays until the report is answered.
bool EvaluationRounds::Advance(Micros now) {
  if (!IsAnswered()) return false;
  std::vector<Slice>& slices = running_->slices;
  EvaluationSummary& summary = running_->summary;
  if (!slices.empty() && slices.back().part == EvaluationPart::kReport) {
    const std::string& stop_text = slices.back().result->stop_text;
    if (!stop_text.empty()) summary.stop_text = stop_text;
    return Finish(now);
  }
  for (const Slice& slice : slices) AddSlice(*slice.result, plan_.data.class_count, &summary);
  if (plan_.job.eval_report == ReportUse::kNone) return Finish(now);
  slices.push_back({.part = EvaluationPart::kReport,
                    .index = static_cast<uint32_t>(slices.size()),
                    .first_sample = plan_.data.test_samples,
                    .last_sample = plan_.data.test_samples});
  return false;
}

bool EvaluationRounds::Finish(Micros now) {
  const EvaluationSummary summary = std::move(running_->summary);
  phase_.clock().OnEvaluationDone(now);
  running_.reset();
  history_.Add(summary);
  // P25: the results, and so the decision, are in the journal before any process learns them.
  if (!outbox_.Commit()) return false;
  observer_.OnEvaluation(now, summary);
  outbox_.RepeatAt(now);  // release the pins
  TellDecision(now);
  return history_.is_over();
}

// P32. Reports an early stop, or lets the lanes make more steps.
void EvaluationRounds::TellDecision(Micros now) {
  if (!plan_.job.may_stop_early()) return;
  const Version last = history_.final_version();
  if (last != plan_.steps.final_version()) return TellStop(now, last);
  const Step next = StepUpdating(history_.evaluated());
  const Step first(next.value() - next.value() % kScalarsPerBlock);
  for (const Member* server : members_.TakingPart(Role::kServer)) {
    for (const PeerId& lane : server->Peers()) progress_.SendScalars(lane, first);
  }
}

void EvaluationRounds::TellStop(Micros now, Version last) {
  if (const auto& text = history_.all().back().stop_text) {
    return outbox_.TellNotable(now, "early-stop", "", "the run ends with version {}: {}",
                               last.value(), *text);
  }
  const std::string metric = EvaluatedValues(plan_.job).metric;
  outbox_.TellNotable(
      now, "early-stop", "",
      "the run ends with version {}: {} evaluations in a row have not improved the best {} {} "
      "by more than {:g}",
      last.value(), plan_.job.early_stop_patience, plan_.job.evaluated_on(),
      metric == "correct"    ? "accuracy"
      : metric == "loss_sum" ? "loss"
                             : metric,
      plan_.job.early_stop_min_delta);
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
  const Version evaluated = history_.evaluated();
  if (released_.Newest(lane) < evaluated) outbox_.Send(lane, ReleasePin{evaluated});
}

void EvaluationRounds::RepeatSlices() {
  if (!running_) return;
  for (const Slice& slice : running_->slices) {
    if (slice.result || slice.worker == kUnknownNode) continue;
    SendSlice(members_.Find(slice.worker)->peer, slice);
  }
}

void EvaluationRounds::StartGeneration() {
  running_.reset();
  phase_.clock().OnEvaluationLost();
}

bool EvaluationRounds::DropAfter(Micros now, Version last_good) {
  const size_t dropped = history_.DropAfter(last_good);
  if (running_ && running_->version > last_good) {
    phase_.clock().OnEvaluationDone(now);
    running_.reset();
  }
  if (!outbox_.Commit()) return false;
  if (dropped > 0) observer_.OnEvaluationsDropped(now, last_good);
  return true;
}

}  // namespace pando
