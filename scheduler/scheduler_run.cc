// The scheduler's run: scalars, progress, evaluation (P31), collection of the final weights, the
// end (P33).
#include <algorithm>
#include <utility>

#include "scheduler/scheduler.h"

namespace pando {
namespace {

// Shards asked for at once: bounds what the final weights take in flight.
constexpr uint32_t kCollectedAtOnce = 16;

}  // namespace

void Scheduler::OnMessageOf(Micros, const PeerId& from, const ScalarsRequest& request) {
  if (request.first.value() % kScalarsPerBlock != 0) return;
  if (request.first.value() >= plan_.steps.step_count()) return;
  Send(from, Scalars{request.first, schedule_.Block(request.first, kScalarsPerBlock)});
}

void Scheduler::OnMessageOf(Micros now, const PeerId& from, const Progress& progress) {
  Version& committed = FindMember(from.incarnation)->committed[from.lane];
  committed = std::max(committed, progress.committed);
  for (const StepMetrics& row : progress.rows) {
    if (row.step != next_row_ || row.step.value() >= plan_.steps.step_count()) continue;
    observer_.OnStepMetrics(now, row);
    next_row_ = NextStep(next_row_);
  }
  Send(from, ProgressAck{progress.committed, next_row_});
}

Version Scheduler::committed() const {
  if (view_.shards.empty()) return Version(0);
  Version lowest = plan_.steps.final_version();
  for (const ShardPlacement& placement : view_.shards) {
    const auto member = members_.find(placement.primary.node);
    if (member == members_.end()) return Version(0);
    const auto lane = member->second.committed.find(placement.primary.lane);
    lowest = std::min(lowest, lane == member->second.committed.end() ? Version(0) : lane->second);
  }
  return lowest;
}

Micros Scheduler::TrainingTime(Micros now) const {
  if (phase_ == Phase::kGathering) return Micros(0);
  if (training_time_ != Micros(0)) return training_time_;
  const Micros evaluating = evaluation_ ? now - evaluation_->started_at : Micros(0);
  return now - training_since_ - evaluation_time_ - evaluating;
}

// ---- evaluation --------------------------------------------------------------------------------

void Scheduler::StartDueEvaluation(Micros now) {
  if (evaluation_ || evaluated_ == plan_.steps.final_version()) return;
  const Version due = plan_.NextEvaluation(evaluated_);
  if (committed() < due) return;
  if (due == plan_.steps.final_version()) training_time_ = TrainingTime(now);
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
  if (!evaluation_) return;
  for (Member* worker : Living(Role::kWorker)) {
    const auto is_busy = [&](const Slice& slice) {
      return slice.worker == worker->peer.node && !slice.result;
    };
    if (std::ranges::any_of(evaluation_->slices, is_busy)) continue;
    const auto slice = std::ranges::find(evaluation_->slices, kUnknownNode, &Slice::worker);
    if (slice == evaluation_->slices.end()) return;
    slice->worker = worker->peer.node;
    Send(worker->peer,
         Evaluate{evaluation_->version, slice->index, slice->first_sample, slice->last_sample});
  }
}

void Scheduler::OnMessageOf(Micros now, const PeerId&, const EvaluationResult& result) {
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
  repeat_at_ = now;  // release the pins
  observer_.OnEvaluation(now, summary);
  if (evaluated_ == plan_.steps.final_version()) StartCollecting(now);
}

void Scheduler::OnMessageOf(Micros, const PeerId& from, const PinReleased& released) {
  Version& version = FindMember(from.incarnation)->released_pin[from.lane];
  version = std::max(version, released.version);
}

// ---- the end -----------------------------------------------------------------------------------

void Scheduler::StartCollecting(Micros now) {
  phase_ = Phase::kCollecting;
  final_weights_.emplace(plan_.layout.float_count());
  collected_.assign(plan_.shards.shard_count(), false);
  Collect(now);
}

void Scheduler::Collect(Micros) {
  std::map<PeerId, Pull> pulls;
  uint32_t asked = 0;
  for (collect_end_ = 0; collect_end_ < collected_.size() && asked < kCollectedAtOnce;
       ++collect_end_) {
    if (collected_[collect_end_]) continue;
    const ShardId shard(collect_end_);
    pulls[view_.shards[collect_end_].primary].items.push_back({shard, plan_.steps.final_version()});
    ++asked;
  }
  for (auto& [lane, pull] : pulls) Send(lane, std::move(pull));
}

void Scheduler::OnMessageOf(Micros now, const PeerId&, const Params& params) {
  if (phase_ != Phase::kCollecting) return;
  for (const ParamsItem& item : params.items) {
    const uint32_t i = item.shard.value();
    if (i >= collected_.size() || collected_[i] || item.version != plan_.steps.final_version())
      continue;
    const ShardRange& range = plan_.shards.range(item.shard);
    if (item.payload.floats().size() != range.size()) continue;
    std::ranges::copy(item.payload.floats(), final_weights_->data() + range.first);
    collected_[i] = true;
  }
  const auto missing = std::ranges::find(collected_, false) - collected_.begin();
  if (missing == static_cast<long>(collected_.size())) {
    observer_.OnFinalWeights(now, *final_weights_);
    final_weights_.reset();
    End(now, StopReason::kCompleted, "completed");
  } else if (missing >= collect_end_) {
    Collect(now);  // what was asked for is here
  }
}

void Scheduler::OnMessageOf(Micros now, const PeerId& from, const Failure& failure) {
  Member& member = *FindMember(from.incarnation);
  const std::string text = NameOf(member) + " on " + member.registration.host + ": " + failure.text;
  if (phase_ < Phase::kStopping) observer_.OnEvent(now, {"failed", NameOf(member), failure.text});
  End(now, StopReason::kFailed, text);
}

void Scheduler::End(Micros now, StopReason reason, std::string text) {
  if (phase_ >= Phase::kStopping) return;
  if (training_time_ == Micros(0)) training_time_ = TrainingTime(now);
  phase_ = Phase::kStopping;
  stop_ = Stop{reason, std::move(text)};
  stop_at_ = now;
  repeat_at_ = now;  // say it
}

void Scheduler::OnMessageOf(Micros, const PeerId& from, const Bye&) {
  if (phase_ != Phase::kStopping) return;
  Member& member = *FindMember(from.incarnation);
  member.left_lanes.insert(from.lane);
  member.is_gone = member.left_lanes.size() == PeersOf(member).size();
}

void Scheduler::SendStop() {
  for (const auto& [node, member] : members_) {
    if (member.is_gone) continue;
    for (const PeerId& peer : PeersOf(member)) {
      if (!member.left_lanes.contains(peer.lane)) Send(peer, *stop_);
    }
  }
}

void Scheduler::LeaveWhenAllHave(Micros now) {
  const bool all = std::ranges::all_of(members_, [](const auto& m) { return m.second.is_gone; });
  if (all || now - stop_at_ >= options_.stop_grace) phase_ = Phase::kFinished;
}

}  // namespace pando
