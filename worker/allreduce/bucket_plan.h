// PlanBuckets: which shards travel together in an allreduce, as PyTorch's DDP does it: in the order
// in which backward makes them final, so a bucket leaves while the layers before it are computed.
#pragma once

#include <vector>

#include "plan/tensor_layout.h"

namespace pando {

// DDP's sizes (torch/nn/parallel/distributed.py): the first bucket is small, so that the exchange
// begins early.
inline constexpr size_t kFirstBucketBytes = size_t{1} << 20;
inline constexpr size_t kBucketBytes = size_t{25} << 20;

struct Bucket {
  ShardPlan::Run shards;
  ShardRange floats;  // of the flat vector: those of the shards, which are neighbours
};

// From the last shard to the first; a bucket is full once it has its bytes, as DDP's.
std::vector<Bucket> PlanBuckets(const ShardPlan& shards);

}  // namespace pando
