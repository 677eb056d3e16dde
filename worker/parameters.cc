#include "worker/parameters.h"

#include <algorithm>

namespace pando {
namespace {

constexpr std::array<Version, 2> kNothing{Version(UINT64_MAX), Version(UINT64_MAX)};

}  // namespace

Parameters::Parameters(const SessionPart& part, const Steps& steps)
    : SessionPart(part),
      steps_(steps),
      held_(versions_.shard_count(), kNothing),
      wanted_(versions_) {}

bool Parameters::IsSound(const ParamsItem& item) const {
  if (!versions_.HasShard(item.shard)) return false;
  const size_t bytes = item.form == ParamsForm::kEncoded
                           ? plan_.pulls.PayloadBytes(item.shard)
                           : plan_.shards.range(item.shard).size() * sizeof(float);
  return item.payload.size_bytes() == bytes;
}

void Parameters::HandOverNeeded(const ParamsItem& item) {
  if (item.form != plan_.training_form()) return;
  Version& held = held_[item.shard.value()][item.version.value() % 2];
  if (held == item.version || steps_.Find(StepReading(item.version)) == nullptr) return;
  held = item.version;
  compute_.ParametersArrived(item.shard, item.version, item.payload);
}

void Parameters::HandOverWanted(const ParamsItem& item) {
  if (item.form == plan_.training_form() &&
      wanted_.Remove({ParameterUse::kTraining, item.version, item.shard}))
    compute_.ParametersArrived(item.shard, item.version, item.payload);
  if (item.form == ParamsForm::kExact &&
      wanted_.Remove({ParameterUse::kEvaluation, item.version, item.shard}))
    compute_.EvaluationParametersArrived(item.shard, item.version, item.payload);
}

void Parameters::Forget() {
  std::ranges::fill(held_, kNothing);
  wanted_.Clear();
}

std::optional<Version> Parameters::VersionToPull(ShardId shard) const {
  if (!steps_.has_started()) return std::nullopt;
  const auto& works = steps_.works();
  for (const Steps::Work& work : works) {
    const Version version = VersionReadBy(work.step);
    if (HasVersion(shard, version)) continue;
    const bool is_first = &work == &works.front();
    const bool is_unasked = works.front().open_calls == 0 && !gradients_.AsksFor(shard, version);
    if (is_first || version <= versions_.known(shard) || is_unasked) return version;
  }
  return std::nullopt;
}

// ---- with layer residency ----------------------------------------------------------------------

std::vector<WantedShards::Key> WantedShards::TakeDue(Micros now) {
  std::vector<Key> due;
  for (auto& [key, ask] : asks_) {
    if (now < ask.at || !IsPulledAsWanted(key)) continue;
    due.push_back(key);
    ask.interval = std::clamp(2 * ask.interval, kRetryFirst, kRetryMax);
    ask.at = now + ask.interval;
  }
  return due;
}

Micros WantedShards::NextDeadline() const {
  Micros deadline = kNever;
  for (const auto& [key, ask] : asks_) {
    if (IsPulledAsWanted(key)) deadline = std::min(deadline, ask.at);
  }
  return deadline;
}

}  // namespace pando
