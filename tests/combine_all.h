// The factors that shards get from the partial values of all shards, for tests of norms.
#pragma once

#include <span>
#include <vector>

#include "optim/partial_plan.h"

namespace pando {

// `partials`: by shard.
inline std::vector<float> CombineAll(const PartialPlan& plan, ShardId shard,
                                     const std::vector<std::vector<float>>& partials) {
  PartialTotal total;
  for (uint32_t s = 0; s < partials.size(); ++s) plan.AddTo(&total, ShardId(s), partials[s]);
  return plan
      .Combine(shard, total,
               [&](ShardId id) { return std::span<const float>(partials[id.value()]); })
      .value();
}

}  // namespace pando
