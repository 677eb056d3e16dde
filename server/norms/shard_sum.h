// ShardSum is a set of shards and the total of their partial values for one step (P16). A total
// over a set of shards has the same bits on every lane and in every view, so lanes may add up what
// others have added, provided that no shard counts twice. Threads: none.
#pragma once

#include <span>
#include <vector>

#include "optim/partial_plan.h"
#include "proto/messages.h"

namespace pando {

class ShardSum {
 public:
  // Only the shards that are true in `allowed` are added. It outlives the sum.
  explicit ShardSum(const std::vector<bool>& allowed) : allowed_(allowed), has_(allowed.size()) {}

  bool Has(ShardId shard) const { return has_[shard.value()]; }
  bool is_complete() const { return has_ == allowed_; }
  const PartialTotal& total() const { return total_; }

  void Add(const PartialPlan& plan, ShardId shard, std::span<const float> partials);
  // Adds a sum if all of its shards are allowed and none has been added. A sum that names no shard,
  // which is one over all shards, is not added: it has no place in a sum over some.
  // REQUIRES: it has PartialTotal::kFloats values.
  void Add(const PartialSum& sum);
  PartialSum Write(Step step) const;

 private:
  bool MayAdd(ShardId shard) const;

  const std::vector<bool>& allowed_;  // by shard, as the next one
  std::vector<bool> has_;
  PartialTotal total_;
};

}  // namespace pando
