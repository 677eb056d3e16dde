// LayerPass is one pass of a simulated worker with layer residency over shards in some order: the
// one at work and the next one are asked for, and dropped once they have been read.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/hash.h"
#include "train/compute_port.h"

namespace pando::sim {

class LayerPass {
 public:
  using Want = std::function<void(ShardId)>;
  LayerPass(Version version, std::vector<ShardId> order, Want want)
      : version_(version), order_(std::move(order)), want_(std::move(want)) {}

  void Start() {
    for (size_t i = 0; i < kAtWork && i < order_.size(); ++i) want_(order_[i]);
  }
  // Shards that are not wanted are dropped.
  void Arrived(ShardId shard, Version version, std::vector<float> floats) {
    if (version != version_ || !IsWanted(shard)) return;
    arrived_.emplace(shard, std::move(floats));
    PANDO_CHECK(arrived_.size() <= kAtWork);
  }
  bool is_done() const { return at_ == order_.size(); }
  // Whether the shard that is read next is here.  REQUIRES of the others: it is.
  bool is_ready() const { return !is_done() && arrived_.contains(order_[at_]); }
  ShardId shard() const { return order_[at_]; }
  std::span<const float> floats() const { return arrived_.at(order_[at_]); }
  void DropAndGoOn() {
    arrived_.erase(order_[at_]);
    if (at_ + kAtWork < order_.size()) want_(order_[at_ + kAtWork]);
    ++at_;
  }
  Version version() const { return version_; }

 private:
  static constexpr size_t kAtWork = 2;
  bool IsWanted(ShardId shard) const {
    for (size_t i = at_; i < at_ + kAtWork && i < order_.size(); ++i) {
      if (order_[i] == shard) return true;
    }
    return false;
  }
  const Version version_;
  const std::vector<ShardId> order_;
  const Want want_;
  size_t at_ = 0;
  std::map<ShardId, std::vector<float>> arrived_;
};

}  // namespace pando::sim
