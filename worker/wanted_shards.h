// WantedShards has the shards that computing threads have asked for (layer residency), until they
// arrive or are gone, and when to ask for them again. If the work that wants a shard is abandoned
// meanwhile, the shard is still asked for, arrives and is dropped. parameters.cc implements it.
// Threads: none.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "common/clock.h"
#include "train/compute_port.h"
#include "worker/committed_versions.h"

namespace pando {

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

}  // namespace pando
