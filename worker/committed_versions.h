// CommittedVersions has the newest version of each shard that is known to be committed. Many
// messages carry it. Threads: none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "common/ids.h"

namespace pando {

// SessionListener is the session as its parts see it. It acts before the call returns.
class SessionListener {
 public:
  virtual ~SessionListener() = default;
  virtual void OnCommitted(ShardId shard, Version version) = 0;
  // Is called when a step is handed to compute: its parameters are needed.
  virtual void OnStepBegun(Step step) = 0;
  // Is called when steps are abandoned: compute's sums of them do not count, and may be made again.
  virtual void OnStepsAbandoned(Step from) = 0;
};

class CommittedVersions {
 public:
  // `listener` outlives it.
  CommittedVersions(size_t shard_count, SessionListener& listener)
      : listener_(listener),
        known_(shard_count),
        lowest_count_(static_cast<std::ptrdiff_t>(shard_count)) {}

  size_t shard_count() const { return known_.size(); }
  bool HasShard(ShardId shard) const { return shard.value() < known_.size(); }
  Version known(ShardId shard) const { return known_[shard.value()]; }
  // The version that every shard has.
  Version everywhere() const { return everywhere_; }
  Step lowest_incomplete() const { return StepUpdating(everywhere()); }
  // The first of the shards that are furthest behind.
  ShardId lowest_shard() const {
    return ShardId(static_cast<uint32_t>(std::ranges::min_element(known_) - known_.begin()));
  }

  void Learn(ShardId shard, Version version) {
    Version& known = known_[shard.value()];
    if (version <= known) return;
    const bool was_lowest = std::exchange(known, version) == everywhere_;
    if (was_lowest && --lowest_count_ == 0) FindLowest();
    listener_.OnCommitted(shard, version);
  }
  // Notes that every shard has this version or a newer one.
  void LearnAll(Version version) {
    if (version <= everywhere_) return;
    for (uint32_t s = 0; s < known_.size(); ++s) Learn(ShardId(s), version);
  }
  void Forget() {
    std::ranges::fill(known_, Version(0));
    FindLowest();
  }

 private:
  void FindLowest() {
    everywhere_ = *std::ranges::min_element(known_);
    lowest_count_ = std::ranges::count(known_, everywhere_);
  }

  SessionListener& listener_;
  std::vector<Version> known_;   // by shard
  Version everywhere_;           // the lowest of them
  std::ptrdiff_t lowest_count_;  // how many shards have it
};

}  // namespace pando
