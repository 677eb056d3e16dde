// PlaceEvenly is the rule by which shards find their servers: the scheduler places primaries by it
// for version 0, and `pando plan` assumes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/shard_plan.h"

namespace pando {

// Returns the bytes of each shard.
std::vector<uint64_t> ShardBytes(const ShardPlan& plan);

// Returns the indices of these sizes, the largest first; equal ones in their order.
std::vector<uint32_t> LargestFirst(const std::vector<uint64_t>& sizes);

// Returns the index of each shard's server: the one with the fewest bytes so far. Up to
// ShardPlan::kFewServers the largest shards are placed first, for bytes that are as even as
// possible. With more, shards are placed in the order of the vector, so that the bytes of each
// layer are spread, too: the servers receive and send all of them at about the same time.
// REQUIRES: server_count > 0.
std::vector<size_t> PlaceEvenly(const std::vector<uint64_t>& shard_bytes, size_t server_count);

}  // namespace pando
