// Where shards and micro-batches go. Pure functions of the members; called by the scheduler core.
#pragma once

#include <vector>

#include "common/tensor_layout.h"
#include "proto/messages.h"

namespace pando {

// Gives each shard to the lane with the fewest bytes so far, largest shards first, so that lanes
// differ by at most the largest shard, and all of them have work all through backward. A model of
// few bytes, whose steps are bound by messages, is cut into one run of shards per lane instead; a
// lane is then within one shard of its share.  REQUIRES: lanes not empty.
std::vector<ShardPlacement> PlaceShards(const ShardPlan& plan, const std::vector<PeerId>& lanes);

// Gives each worker an aligned run of micro-batches, as even as they come: worker i of w gets
// [iN/w, (i+1)N/w), so that runs are whole subtrees wherever the numbers allow.
// REQUIRES: workers not empty.
std::vector<MicroBatchOwner> AssignMicroBatches(uint32_t micro_batch_count,
                                                const std::vector<NodeId>& workers,
                                                Step first_step);

}  // namespace pando
