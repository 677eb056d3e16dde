// The factors that shards get from the partial values of all shards, for tests of norms.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "optim/partial_plan.h"

namespace pando {

// `partials`: by shard; empty ones are missing. Returns none if the factors need one of these.
inline std::optional<std::vector<float>> FindFactors(
    const PartialPlan& plan, ShardId shard, const std::vector<std::vector<float>>& partials) {
  PartialTotal total;
  for (uint32_t s = 0; s < partials.size(); ++s) {
    if (!partials[s].empty()) plan.AddTo(&total, ShardId(s), partials[s]);
  }
  return plan.Combine(shard, total, [&](ShardId id) { return std::span(partials[id.value()]); });
}
inline std::vector<float> CombineAll(const PartialPlan& plan, ShardId shard,
                                     const std::vector<std::vector<float>>& partials) {
  return FindFactors(plan, shard, partials).value();
}

}  // namespace pando
