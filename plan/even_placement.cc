#include "plan/even_placement.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "common/check.h"

namespace pando {

std::vector<uint64_t> ShardBytes(const ShardPlan& plan) {
  std::vector<uint64_t> bytes;
  for (const ShardRange& range : plan.ranges()) bytes.push_back(range.size() * sizeof(float));
  return bytes;
}

std::vector<uint32_t> LargestFirst(const std::vector<uint64_t>& sizes) {
  std::vector<uint32_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](uint32_t i) { return sizes[i]; });
  return order;
}

std::vector<size_t> PlaceEvenly(const std::vector<uint64_t>& shard_bytes, size_t server_count) {
  PANDO_CHECK(server_count > 0);
  std::vector<uint64_t> server_bytes(server_count);
  std::vector<size_t> servers(shard_bytes.size());
  const auto place = [&](size_t shard) {
    const auto emptiest = std::ranges::min_element(server_bytes);
    *emptiest += shard_bytes[shard];
    servers[shard] = static_cast<size_t>(emptiest - server_bytes.begin());
  };
  if (server_count <= ShardPlan::kFewServers) {
    for (const uint32_t shard : LargestFirst(shard_bytes)) place(shard);
  } else {
    for (size_t shard = 0; shard < shard_bytes.size(); ++shard) place(shard);
  }
  return servers;
}

}  // namespace pando
