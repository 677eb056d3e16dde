// Parameters knows which versions of the shards compute has, and which it still needs. With layer
// residency compute gets only the shards that it asks for, when it asks: in forward, in backward
// and in evaluation. Parameters that arrive without a request are dropped; they only show that the
// version is committed. Servers keep a version while its step lacks this worker's part. If a lane
// answers Behind, the step is complete without that part, and the work is dropped (P11).
// Used by the session. Threads: none. Invariants I4.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "worker/session_part.h"
#include "worker/steps.h"

namespace pando {

// The shards that computing threads have asked for (layer residency), until they arrive or are
// gone, and when to ask for them again. If the work that wants a shard is abandoned meanwhile, the
// shard is still asked for, arrives and is dropped.
class WantedShards {
 public:
  static constexpr Micros kRetryFirst = std::chrono::milliseconds(500);
  static constexpr Micros kRetryMax = std::chrono::seconds(4);
  struct Key {
    ParameterUse use;
    Version version;
    ShardId shard;
    auto operator<=>(const Key&) const = default;
  };

  // `versions` outlives it.
  explicit WantedShards(const CommittedVersions& versions) : versions_(versions) {}

  // The shard is due at once, unless it is wanted already.
  void Add(const Key& key) { asks_.try_emplace(key); }
  // It has arrived.  False if it was not wanted.
  bool Remove(const Key& key) { return asks_.erase(key) == 1; }
  // Wanted shards of this version and older ones will not come.
  void RemoveUpTo(ParameterUse use, Version version) {
    std::erase_if(asks_, [&](const auto& entry) {
      return entry.first.use == use && entry.first.version <= version;
    });
  }
  void Clear() { asks_.clear(); }
  // Another lane may lead the shards now.
  void AskAgain() {
    for (auto& [key, ask] : asks_) ask = {};
  }
  void AskSoon(ShardId shard, Micros at) {
    for (auto& [key, ask] : asks_) {
      if (key.shard == shard) ask.at = std::min(ask.at, at);
    }
  }

  // The shards to ask for now, in this order. Each is due again after a while.
  std::vector<Key> TakeDue(Micros now);
  Micros NextDeadline() const;
  size_t size() const { return asks_.size(); }

 private:
  struct Ask {
    Micros at{0};
    Micros interval{0};
  };
  // A version that is not known to be committed comes by our push for it, or is pulled for the
  // barrier.
  bool IsPulledAsWanted(const Key& key) const {
    return key.use == ParameterUse::kEvaluation || key.version <= versions_.known(key.shard);
  }

  const CommittedVersions& versions_;
  std::map<Key, Ask> asks_;
};

class Parameters : SessionPart {
 public:
  // `steps` outlives it.
  Parameters(const SessionPart& part, const Steps& steps);

  // Whether the item names a shard and has the size of its values. Others are dropped.
  bool IsSound(const ParamsItem& item) const;
  // Hands the values to compute if it needs them.  REQUIRES: IsSound(item).
  void OnParams(const ParamsItem& item) {
    pulled_bytes_ += item.payload.size_bytes();
    is_layered() ? HandOverWanted(item) : HandOverNeeded(item);
  }
  void OnParametersWanted(const ParametersWanted& wanted) {
    for (ShardId shard : wanted.shards) wanted_.Add({wanted.use, wanted.version, shard});
  }
  // With layer residency: this version, or an older one, does not arrive any more.
  void OnGone(ParameterUse use, Version version) {
    if (!is_layered()) return;
    wanted_.RemoveUpTo(use, version);
    compute_.ParametersGone(use, version);
  }
  void Forget();

  bool is_layered() const { return plan_.job.parameter_residency == ParameterResidency::kLayer; }
  // Whether compute has this version whole, or, with layer residency, can get it on request.
  bool HasVersion(ShardId shard, Version version) const {
    if (is_layered()) return version <= versions_.known(shard);
    return held_[shard.value()][version.value() % 2] == version;
  }
  bool HasWhole(Version version) const {
    for (uint32_t s = 0; s < held_.size(); ++s) {
      if (!HasVersion(ShardId(s), version)) return false;
    }
    return true;
  }
  // The version of this shard that compute needs and that no push of ours asks for. A push asks for
  // the version that it helps to make, so nothing is pulled before our pushes are made.
  std::optional<Version> VersionToPull(ShardId shard) const;

  // With layer residency: the shards that compute asked for.
  WantedShards& wanted() { return wanted_; }
  const WantedShards& wanted() const { return wanted_; }
  uint64_t pulled_bytes() const { return pulled_bytes_; }

 private:
  void HandOverNeeded(const ParamsItem& item);
  void HandOverWanted(const ParamsItem& item);

  const Steps& steps_;
  std::vector<std::array<Version, 2>> held_;  // by compute: by shard, and by the version's parity
  WantedShards wanted_;
  uint64_t pulled_bytes_ = 0;
};

}  // namespace pando
