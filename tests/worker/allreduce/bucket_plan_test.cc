#include "worker/allreduce/gradient_exchange.h"

#include <doctest/doctest.h>

#include <numeric>

namespace pando {
namespace {

// Tensors of these sizes, in floats, without their padding.
ShardPlan PlanFor(const std::vector<uint64_t>& sizes) {
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < sizes.size(); ++i)
    specs.push_back({.name = "t" + std::to_string(i), .shape = {sizes[i]}});
  specs.push_back(MetricTensorSpec());
  return ShardPlan(TensorLayout(std::move(specs)));
}

// All shards, once each, from the last to the first.
void CheckCovers(const std::vector<Bucket>& buckets, const ShardPlan& shards) {
  uint32_t last = shards.shard_count();
  for (const Bucket& bucket : buckets) {
    CHECK(bucket.shards.last == last);
    CHECK(bucket.shards.first < bucket.shards.last);
    CHECK(bucket.floats.first == shards.range(ShardId(bucket.shards.first)).first);
    CHECK(bucket.floats.last == shards.range(ShardId(bucket.shards.last - 1)).last);
    last = bucket.shards.first;
  }
  CHECK(last == 0);
}

TEST_CASE("a small model is one bucket") {
  const ShardPlan shards = PlanFor({3, 1000, 20'000});
  const std::vector<Bucket> buckets = PlanBuckets(shards);
  CHECK(buckets.size() == 1);
  CheckCovers(buckets, shards);
}

TEST_CASE("a model of one shard, the metrics alone, is one bucket") {
  const ShardPlan shards = PlanFor({});
  REQUIRE(shards.shard_count() == 1);
  CheckCovers(PlanBuckets(shards), shards);
}

TEST_CASE("the first bucket has a megabyte, the others have 25, as nearly as shards allow") {
  const ShardPlan shards = PlanFor(std::vector<uint64_t>(40, 1'000'000));  // 160 MB
  const std::vector<Bucket> buckets = PlanBuckets(shards);
  CheckCovers(buckets, shards);
  constexpr size_t kShardBytesMax = size_t{4} << 20;  // the target, and whole tensors are cut
  CHECK(buckets.size() >= 6);
  for (size_t b = 0; b < buckets.size(); ++b) {
    const size_t bytes = buckets[b].floats.size() * sizeof(float);
    const size_t wanted = b == 0 ? kFirstBucketBytes : kBucketBytes;
    CHECK(bytes < wanted + 2 * kShardBytesMax);
    if (b + 1 < buckets.size()) CHECK(bytes >= wanted);
  }
}

}  // namespace
}  // namespace pando
