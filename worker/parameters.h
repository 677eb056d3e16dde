// Parameters: which versions of the shards compute has, and which it still needs. With layer
// residency compute gets only what it wants, when it wants it: in forward, in backward and in
// evaluation. What a push brings back, or is pulled to learn of a commit, and nothing wants, is
// dropped. A version stays with the servers while its step lacks anything of ours; the step of one
// that is Behind is over, and so is the work that wants it.
// Used by the session. Threads: none. Invariants I4.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "plan/job_plan.h"
#include "train/compute_port.h"
#include "worker/committed_versions.h"
#include "worker/steps.h"
#include "worker/unreplied_gradients.h"
#include "worker/wanted_shards.h"

namespace pando {

class Parameters {
 public:
  // All outlive it.
  Parameters(const JobPlan& plan, const CommittedVersions& versions, const Steps& steps,
             const UnrepliedGradients& gradients, ComputePort& compute);

  // Whether it names a shard and has the size of its values. Others are dropped.
  bool IsSound(const ParamsItem& item) const;
  // Hands the values to compute if it needs them.  REQUIRES: IsSound(item).
  void OnParams(const ParamsItem& item);
  void OnParametersWanted(const ParametersWanted& wanted);
  // With layer residency: this version, or an older one, does not arrive any more.
  void OnGone(ParameterUse use, Version version);
  void EnterView() { wanted_.AskAnew(); }
  void Forget();

  bool is_layered() const { return plan_.job.parameter_residency == ParameterResidency::kLayer; }
  // Whether compute has this, or, with layer residency, can have it when it wants it.
  bool HasVersion(ShardId shard, Version version) const;
  bool HasWhole(Version version) const;
  // The version that compute needs of this shard and that no push of ours asks for. A push asks for
  // the version it helps to make, so nothing is pulled while ours are still to come.
  std::optional<Version> VersionToPull(ShardId shard) const;

  // With layer residency: what is wanted and due, in the order in which to ask for it.
  std::vector<WantedShards::Key> TakeDue(Micros now);
  Micros NextDeadline() const;
  void AskSoon(ShardId shard, Micros at) { wanted_.AskSoon(shard, at); }

  size_t wanted_count() const { return wanted_.size(); }
  uint64_t pulled_bytes() const { return pulled_bytes_; }

 private:
  void HandOverNeeded(const ParamsItem& item);
  void HandOverWanted(const ParamsItem& item);
  bool IsPulledAsWanted(const WantedShards::Key& key) const;

  const JobPlan& plan_;
  const CommittedVersions& versions_;
  const Steps& steps_;
  const UnrepliedGradients& gradients_;
  ComputePort& compute_;
  std::vector<std::array<Version, 2>> held_;  // by compute: by shard, and by the version's parity
  WantedShards wanted_;                       // with layer residency
  uint64_t pulled_bytes_ = 0;
};

}  // namespace pando
