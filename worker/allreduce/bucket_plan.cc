#include "worker/allreduce/bucket_plan.h"

namespace pando {

std::vector<Bucket> PlanBuckets(const ShardPlan& shards) {
  std::vector<Bucket> buckets;
  uint32_t last = shards.shard_count();
  for (uint32_t s = shards.shard_count(); s-- > 0;) {
    const ShardRange floats{shards.range(ShardId(s)).first, shards.range(ShardId(last - 1)).last};
    const size_t wanted = buckets.empty() ? kFirstBucketBytes : kBucketBytes;
    if (floats.size() * sizeof(float) < wanted && s > 0) continue;
    buckets.push_back({{s, last}, floats});
    last = s;
  }
  return buckets;
}

}  // namespace pando
