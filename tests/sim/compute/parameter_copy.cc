#include "tests/sim/compute/parameter_copy.h"

#include <span>

#include "tests/sim/reference.h"

namespace pando::sim {

std::vector<ShardId> ListShards(const JobPlan& plan, ShardsRead which) {
  std::vector<ShardId> shards;
  for (uint32_t s = 0; s < plan.shards.shard_count(); ++s) {
    if (which == ShardsRead::kAll || ShardId(s) != plan.metric_shard()) shards.emplace_back(s);
  }
  return shards;
}

std::optional<uint64_t> DigestIfWhole(const JobPlan& plan, const ParameterCopy& copy,
                                      ShardsRead which) {
  std::vector<std::span<const float>> shards;
  for (uint32_t s = 0; s < plan.shards.shard_count(); ++s) {
    const auto it = copy.find(ShardId(s));
    const bool is_read = which == ShardsRead::kAll || ShardId(s) != plan.metric_shard();
    if (it == copy.end() && is_read) return std::nullopt;
    shards.push_back(it == copy.end() ? std::span<const float>()
                                      : std::span<const float>(it->second));
  }
  return DigestOfRead(plan, shards);
}

}  // namespace pando::sim
