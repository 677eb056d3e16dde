// Parameters knows which versions of the shards compute has, and which it still needs. With layer
// residency compute gets only the shards that it asks for, when it asks: in forward, in backward
// and in evaluation. Parameters that arrive without a request are dropped; they only show that the
// version is committed. Servers keep a version while its step lacks this worker's part. If a lane
// answers Behind, the step is complete without that part, and the work is dropped (P11).
// Used by the session. Threads: none. Invariants I4.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "worker/session_part.h"
#include "worker/steps.h"
#include "worker/wanted_shards.h"

namespace pando {

class Parameters : SessionPart {
 public:
  // `steps` outlives it.
  Parameters(const SessionPart& part, const Steps& steps);

  // Returns whether the item names a shard and has the size of its values. Others are dropped.
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
  // Returns whether compute has this version of the shard or, with layer residency, can request it.
  bool HasVersion(ShardId shard, Version version) const {
    if (is_layered()) return version <= versions_.known(shard);
    return held_[shard.value()][Place(version)] == version;
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

  // Counts what may change VersionToPull for all shards at once.
  uint64_t works_change_count() const { return steps_.change_count(); }

  // With layer residency: the shards that compute asked for.
  WantedShards& wanted() { return wanted_; }
  const WantedShards& wanted() const { return wanted_; }
  uint64_t pulled_bytes() const { return pulled_bytes_; }

 private:
  void HandOverNeeded(const ParamsItem& item);
  void HandOverWanted(const ParamsItem& item);

  size_t Place(Version version) const { return version.value() % plan_.steps.versions_kept(); }

  const Steps& steps_;
  // The versions that compute has, by shard and by the version's place.
  using Held = std::array<Version, 2 * kStalenessMax + 2>;
  std::vector<Held> held_;
  WantedShards wanted_;
  uint64_t pulled_bytes_ = 0;
};

}  // namespace pando
