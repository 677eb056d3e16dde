#include "worker/parameters.h"

#include <algorithm>

namespace pando {
namespace {

constexpr std::array<Version, 2> kNothing{Version(UINT64_MAX), Version(UINT64_MAX)};

}  // namespace

Parameters::Parameters(const JobPlan& plan, const CommittedVersions& versions, const Steps& steps,
                       const UnrepliedGradients& gradients, ComputePort& compute)
    : plan_(plan),
      versions_(versions),
      steps_(steps),
      gradients_(gradients),
      compute_(compute),
      held_(versions.shard_count(), kNothing) {}

bool Parameters::IsSound(const ParamsItem& item) const {
  if (!versions_.HasShard(item.shard)) return false;
  const size_t bytes = item.form == ParamsForm::kEncoded
                           ? plan_.pulls.PayloadBytes(item.shard)
                           : plan_.shards.range(item.shard).size() * sizeof(float);
  return item.payload.size_bytes() == bytes;
}

void Parameters::OnParams(const ParamsItem& item) {
  pulled_bytes_ += item.payload.size_bytes();
  is_layered() ? HandOverWanted(item) : HandOverNeeded(item);
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

void Parameters::OnParametersWanted(const ParametersWanted& wanted) {
  for (ShardId shard : wanted.shards) wanted_.Add({wanted.use, wanted.version, shard});
}

void Parameters::OnGone(ParameterUse use, Version version) {
  if (!is_layered()) return;
  wanted_.RemoveUpTo(use, version);
  compute_.ParametersGone(use, version);
}

void Parameters::Forget() {
  std::ranges::fill(held_, kNothing);
  wanted_.Clear();
}

bool Parameters::HasVersion(ShardId shard, Version version) const {
  if (is_layered()) return version <= versions_.known(shard);
  return held_[shard.value()][version.value() % 2] == version;
}

bool Parameters::HasWhole(Version version) const {
  for (uint32_t s = 0; s < held_.size(); ++s) {
    if (!HasVersion(ShardId(s), version)) return false;
  }
  return true;
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

// A version that is not known to be committed comes by our push for it, or is pulled for the
// barrier.
bool Parameters::IsPulledAsWanted(const WantedShards::Key& key) const {
  return key.use == ParameterUse::kEvaluation || key.version <= versions_.known(key.shard);
}

std::vector<WantedShards::Key> Parameters::TakeDue(Micros now) {
  return wanted_.TakeDue(now,
                         [this](const WantedShards::Key& key) { return IsPulledAsWanted(key); });
}

Micros Parameters::NextDeadline() const {
  return wanted_.NextDeadline(
      [this](const WantedShards::Key& key) { return IsPulledAsWanted(key); });
}

}  // namespace pando
