#include "scheduler/final_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <utility>

namespace pando {
namespace {

// The shards that are asked for at once. This bounds the memory of the final weights in flight.
constexpr uint32_t kPulledAtOnce = 16;
// Shards are asked for again after all servers were silent for this time. Over a slow link shards
// arrive one by one, and a repeat would put as many bytes before the missing ones.
constexpr Micros kRetryFirst = std::chrono::milliseconds(500);
constexpr Micros kRetryMax = std::chrono::seconds(4);
// If the final weights cannot be written, writing is tried again: a person may free some space.
// After kKeepPatience the run has failed and can be resumed.
constexpr Micros kKeepRetry = std::chrono::seconds(1);
constexpr Micros kKeepPatience = std::chrono::minutes(30);

}  // namespace

void FinalWeights::StartCollecting(Micros now) {
  phase_.StartCollecting(now);
  collecting_since_ = now;
  unkept_since_.reset();
  compares_ = false;
  weights_.emplace(plan_.layout.float_count());
  collected_.assign(plan_.shards.shard_count(), false);
  silence_max_ = kRetryFirst;
  AskForMissing(now);
}

void FinalWeights::Repeat(Micros now) {
  if (!phase_.is_collecting() || now < again_at_) return;
  silence_max_ = std::min(2 * silence_max_, kRetryMax);
  AskForMissing(now);
}

// P33. If there is no final snapshot, the primaries' parameters are compared with a backup's.
bool FinalWeights::StartComparing(Micros now) {
  const bool has_other = plan_.job.replicas > 1 && !IsGroup(plan_) &&
                         !snapshots_.ledger().IsComplete(history_.final_version());
  if (!has_other || std::exchange(compares_, true)) return false;
  collected_.assign(collected_.size(), false);
  AskForMissing(now);
  return !HasAll();
}

// Returns the lane to pull the shard from. In a comparison a shard without a backup has none.
std::optional<PeerId> FinalWeights::SourceFor(uint32_t shard) const {
  const ShardPlacement& placement = views_.view().shards[shard];
  if (!compares_) return placement.primary;
  if (placement.in_sync_backups.empty()) return std::nullopt;
  return placement.in_sync_backups.front();
}

void FinalWeights::AskForMissing(Micros now) {
  if (phase_.is_rolling_back()) return;
  std::map<PeerId, Pull> pulls;
  uint32_t asked = 0;
  for (pulled_end_ = 0; pulled_end_ < collected_.size() && asked < kPulledAtOnce; ++pulled_end_) {
    const std::optional<PeerId> source = SourceFor(pulled_end_);
    if (!source) collected_[pulled_end_] = true;
    if (collected_[pulled_end_]) continue;
    pulls[*source].items.push_back({ShardId(pulled_end_), history_.final_version()});
    ++asked;
  }
  for (auto& [lane, pull] : pulls) outbox_.Send(lane, std::move(pull));
  again_at_ = now + silence_max_;
}

void FinalWeights::OnParams(Micros now, const PeerId& from, const Params& params) {
  if (!phase_.is_collecting() || phase_.is_rolling_back()) return;
  silence_max_ = kRetryFirst;
  again_at_ = now + silence_max_;
  for (const ParamsItem& item : params.items) {
    const uint32_t i = item.shard.value();
    if (i >= collected_.size() || collected_[i] || SourceFor(i) != from) continue;
    if (item.version != history_.final_version()) continue;
    const ShardRange& range = plan_.shards.range(item.shard);
    if (item.form != ParamsForm::kExact || item.payload.floats().size() != range.size()) continue;
    float* weights = weights_->data() + range.first;
    const std::span<const float> floats = item.payload.floats();
    if (!compares_) std::ranges::copy(floats, weights);
    if (std::memcmp(floats.data(), weights, floats.size_bytes()) != 0) {
      return OnDifference(
          now, fmt::format("two replicas have sent different parameters of shard {} of version {}",
                           i, item.version.value()));
    }
    collected_[i] = true;
  }
  const auto missing = std::ranges::find(collected_, false) - collected_.begin();
  if (missing >= pulled_end_) AskForMissing(now);  // all shards that were asked for have arrived
}

void FinalWeights::Tick(Micros now) {
  if (!phase_.is_collecting()) return;
  if (phase_.is_rolling_back() || !HasAll() || !verification_.IsSettled()) return;
  const bool is_checked = unkept_since_ || compares_;
  if (!is_checked && !snapshots_.IsFinalSettled(now, collecting_since_)) return;
  if (StartComparing(now) || !AreKept(now)) return;
  weights_.reset();
  faults_.Recover(now);
  phase_.SetCompleted();
  if (!outbox_.Commit()) return;
  phase_.End(now, StopReason::kCompleted, "completed");
}

// The servers hold the last version until this returns true. So if the journal has the run's end,
// its weights are written.
bool FinalWeights::AreKept(Micros now) {
  if (unkept_since_ && now < keep_at_) return false;
  const Version version = history_.final_version();
  const auto& complete = snapshots_.ledger().complete();
  const bool has_stored = snapshots_.ledger().IsComplete(version);
  const Status kept =
      observer_.OnFinalWeights(now, version, has_stored ? &complete.back() : nullptr, *weights_);
  if (kept.ok()) return true;
  if (kept.code() == StatusCode::kCorrupt) {
    OnDifference(now, kept.message());
    return false;
  }
  keep_at_ = now + kKeepRetry;
  if (!unkept_since_) {
    unkept_since_ = now;
    outbox_.TellNotable(now, "weights-failed", "", "{}: the run waits until they can be written",
                        kept.message());
  }
  if (now - *unkept_since_ >= kKeepPatience)
    phase_.End(now, StopReason::kFailed, kept.message() + "; the run can be resumed");
  return false;
}

// P33. A second difference ends the run.
void FinalWeights::OnDifference(Micros now, const std::string& text) {
  if (std::exchange(has_differed_, true))
    return phase_.End(now, StopReason::kFailed, text + "; the run can be resumed");
  outbox_.TellNotable(now, "weights-differ", "", "{}: the final weights are collected again", text);
  StartCollecting(now);
}

void FinalWeights::StartGeneration() {
  collected_.clear();
  weights_.reset();
}

}  // namespace pando
