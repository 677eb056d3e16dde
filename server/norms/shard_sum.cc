#include "server/norms/shard_sum.h"

#include <algorithm>

namespace pando {

bool ShardSum::MayAdd(ShardId shard) const {
  const size_t s = shard.value();
  return s < has_.size() && allowed_[s] && !has_[s];
}

void ShardSum::Add(const PartialPlan& plan, ShardId shard, std::span<const float> partials) {
  if (!MayAdd(shard)) return;
  has_[shard.value()] = true;
  plan.AddTo(&total_, shard, partials);
}

void ShardSum::Add(const PartialSum& sum) {
  const auto may_add = [&](ShardId shard) { return MayAdd(shard); };
  if (sum.shards.empty() || !std::ranges::all_of(sum.shards, may_add)) return;
  for (const ShardId shard : sum.shards) has_[shard.value()] = true;
  total_.AddWritten(sum.values);
}

PartialSum ShardSum::Write(Step step) const {
  PartialSum sum{step, {}, total_.Write()};
  for (uint32_t s = 0; s < has_.size(); ++s) {
    if (has_[s]) sum.shards.emplace_back(s);
  }
  return sum;
}

}  // namespace pando
