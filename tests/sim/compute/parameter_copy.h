// ParameterCopy: the shards of one version that a simulated worker holds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "plan/job_plan.h"

namespace pando::sim {

using ParameterCopy = std::map<ShardId, std::vector<float>>;

// Which shards a pass reads. Training does not read the metric shard.
enum class ShardsRead : uint8_t { kAll, kOfTraining };
std::vector<ShardId> ListShards(const JobPlan& plan, ShardsRead which);
// The digest of the whole version; none while a shard that is read is missing.
std::optional<uint64_t> DigestIfWhole(const JobPlan& plan, const ParameterCopy& copy,
                                      ShardsRead which);

}  // namespace pando::sim
