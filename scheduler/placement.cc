#include "scheduler/placement.h"

#include <algorithm>
#include <numeric>

#include "common/check.h"

namespace pando {

namespace {

// Up to this many bytes per lane a step costs what its messages cost, beyond it what its bytes
// cost.
constexpr size_t kRunBytesMax = 256 << 10;

// Shard by shard, each lane a run of about total / lanes floats: backward finishes a lane's shards
// together, so that they travel as one message, and the back of the model while the front is
// computed.
std::vector<ShardPlacement> PlaceInRuns(const ShardPlan& plan, const std::vector<PeerId>& lanes) {
  const size_t total = plan.ranges().back().last;
  std::vector<ShardPlacement> placements;
  for (const ShardRange& range : plan.ranges()) {
    const size_t middle = range.first + range.size() / 2;
    placements.push_back({.primary = lanes[middle * lanes.size() / total]});
  }
  return placements;
}

}  // namespace

std::vector<ShardPlacement> PlaceShards(const ShardPlan& plan, const std::vector<PeerId>& lanes) {
  PANDO_CHECK(!lanes.empty());
  const size_t bytes = plan.ranges().back().last * sizeof(float);
  if (bytes <= kRunBytesMax * lanes.size()) return PlaceInRuns(plan, lanes);
  std::vector<uint32_t> largest_first(plan.shard_count());
  std::iota(largest_first.begin(), largest_first.end(), 0);
  std::ranges::stable_sort(largest_first, [&](uint32_t a, uint32_t b) {
    return plan.range(ShardId(a)).size() > plan.range(ShardId(b)).size();
  });
  std::vector<size_t> floats_of_lane(lanes.size());
  std::vector<ShardPlacement> placements(plan.shard_count());
  for (uint32_t shard : largest_first) {
    const auto lane = std::ranges::min_element(floats_of_lane) - floats_of_lane.begin();
    floats_of_lane[lane] += plan.range(ShardId(shard)).size();
    placements[shard].primary = lanes[lane];
  }
  return placements;
}

std::vector<MicroBatchOwner> AssignMicroBatches(uint32_t micro_batch_count,
                                                const std::vector<NodeId>& workers,
                                                Step first_step) {
  PANDO_CHECK(!workers.empty());
  std::vector<MicroBatchOwner> owners(micro_batch_count);
  for (uint64_t i = 0; i < workers.size(); ++i) {
    const uint64_t last = (i + 1) * micro_batch_count / workers.size();
    for (uint64_t m = i * micro_batch_count / workers.size(); m < last; ++m) {
      owners[m] = {.worker = workers[i], .first_step = first_step};
    }
  }
  return owners;
}

}  // namespace pando
