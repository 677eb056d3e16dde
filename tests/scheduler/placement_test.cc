#include "scheduler/placement.h"

#include <doctest/doctest.h>

#include <map>

namespace pando {
namespace {

ShardPlan PlanOf(std::vector<uint64_t> sizes) {
  std::vector<TensorSpec> specs;
  for (uint64_t size : sizes)
    specs.push_back({.name = "t" + std::to_string(specs.size()), .shape = {size}});
  return ShardPlan(TensorLayout(std::move(specs)));
}

TEST_CASE("lanes differ by no more bytes than the largest shard has") {
  const ShardPlan plan = PlanOf({100'000, 17, 3000, 500'000, 10});
  for (const uint16_t lane_count : {uint16_t{1}, uint16_t{2}, uint16_t{3}, uint16_t{7}}) {
    std::vector<PeerId> lanes;
    for (uint16_t i = 0; i < lane_count; ++i) lanes.push_back({NodeId(1), Incarnation(5), i});
    std::map<PeerId, size_t> floats;
    for (const PeerId& lane : lanes) floats[lane] = 0;
    size_t largest = 0;
    const auto placements = PlaceShards(plan, lanes);
    REQUIRE(placements.size() == plan.shard_count());
    for (uint32_t s = 0; s < plan.shard_count(); ++s) {
      floats[placements[s].primary] += plan.range(ShardId(s)).size();
      largest = std::max(largest, plan.range(ShardId(s)).size());
    }
    size_t least = SIZE_MAX, most = 0;
    for (const auto& [lane, count] : floats) {
      least = std::min(least, count);
      most = std::max(most, count);
    }
    CHECK(most - least <= largest);
  }
}

TEST_CASE("every micro-batch has one owner, in runs as even as they come") {
  for (uint32_t n : {1u, 2u, 5u, 8u, 64u}) {
    for (uint32_t workers = 1; workers <= 7; ++workers) {
      std::vector<NodeId> ids;
      for (uint32_t w = 0; w < workers; ++w) ids.emplace_back(w + 10);
      const auto owners = AssignMicroBatches(n, ids, Step(0));
      REQUIRE(owners.size() == n);
      std::map<NodeId, uint32_t> counts;
      for (uint32_t m = 0; m < n; ++m) {
        ++counts[owners[m].worker];
        if (m > 0) CHECK(owners[m - 1].worker <= owners[m].worker);
      }
      for (const auto& [id, count] : counts) {
        CHECK(count >= n / workers);
        CHECK(count <= n / workers + 1);
      }
    }
  }
}

TEST_CASE("two workers over eight micro-batches hold one subtree each") {
  const auto owners = AssignMicroBatches(8, {NodeId(1), NodeId(2)}, Step(0));
  CHECK(owners[3].worker == NodeId(1));
  CHECK(owners[4].worker == NodeId(2));
}

}  // namespace
}  // namespace pando
