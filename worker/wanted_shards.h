// WantedShards: the shards that computing threads have asked for (layer residency), until they
// arrive or are gone, and when to ask for them again. A shard is asked for even if the work that
// wants it is abandoned meanwhile: then it arrives and is dropped. Used by Parameters. Threads:
// none.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "proto/outbox.h"
#include "train/compute_port.h"

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

  // Due at once, unless it is wanted already.
  void Add(const Key& key) { asks_.try_emplace(key); }
  // It has arrived.  False if it was not wanted.
  bool Remove(const Key& key) { return asks_.erase(key) == 1; }
  // What is wanted of this version and older ones will not come.
  void RemoveUpTo(ParameterUse use, Version version) {
    std::erase_if(asks_, [&](const auto& entry) {
      return entry.first.use == use && entry.first.version <= version;
    });
  }
  void Clear() { asks_.clear(); }
  // Another lane may lead the shards now.
  void AskAnew() {
    for (auto& [key, ask] : asks_) ask = {};
  }
  void AskSoon(ShardId shard, Micros at) {
    for (auto& [key, ask] : asks_) {
      if (key.shard == shard) ask.at = std::min(ask.at, at);
    }
  }

  // What is to be asked for now; asked for again after a while. `is_asked_for`: whether it does not
  // come without a request.
  template <class Predicate>
  std::vector<Key> TakeDue(Micros now, const Predicate& is_asked_for) {
    std::vector<Key> due;
    for (auto& [key, ask] : asks_) {
      if (now < ask.at || !is_asked_for(key)) continue;
      due.push_back(key);
      ask.interval = std::clamp(2 * ask.interval, kRetryFirst, kRetryMax);
      ask.at = now + ask.interval;
    }
    return due;
  }
  template <class Predicate>
  Micros NextDeadline(const Predicate& is_asked_for) const {
    Micros deadline = kNever;
    for (const auto& [key, ask] : asks_) {
      if (is_asked_for(key)) deadline = std::min(deadline, ask.at);
    }
    return deadline;
  }
  size_t size() const { return asks_.size(); }

 private:
  struct Ask {
    Micros at{0};
    Micros interval{0};
  };
  std::map<Key, Ask> asks_;
};

}  // namespace pando
