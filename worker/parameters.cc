#include "worker/parameters.h"

#include <algorithm>

namespace pando {
namespace {

constexpr Version kNothing(UINT64_MAX);

}  // namespace

Parameters::Parameters(const SessionPart& part, const Steps& steps)
    : SessionPart(part), steps_(steps), held_(versions_.shard_count()), wanted_(versions_) {
  Forget();
}

bool Parameters::IsSound(const ParamsItem& item) const {
  if (!versions_.HasShard(item.shard)) return false;
  const size_t bytes = item.form == ParamsForm::kEncoded
                           ? plan_.pulls.PayloadBytes(item.shard)
                           : plan_.shards.range(item.shard).size() * sizeof(float);
  return item.payload.size_bytes() == bytes;
}

void Parameters::HandOverNeeded(const ParamsItem& item) {
  if (item.form != plan_.training_form()) return;
  Version& held = held_[item.shard.value()][Place(item.version)];
  if (held == item.version || !steps_.MayRead(item.version)) return;
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
  for (Held& held : held_) held.fill(kNothing);
  wanted_.Clear();
}

std::optional<Version> Parameters::VersionToPull(ShardId shard) const {
  if (!steps_.has_started()) return std::nullopt;
  const auto& works = steps_.works();
  for (const Steps::Work& work : works) {
    const Version version = plan_.steps.VersionReadBy(work.step);
    if (HasVersion(shard, version)) continue;
    const bool is_first = &work == &works.front();
    if (is_first || version <= versions_.known(shard)) return version;
    const Step made_by(version.value() - 1);
    if (steps_.IsComputed(made_by) && !gradients_.AsksFor(shard, version)) return version;
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
