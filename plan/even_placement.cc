#include "plan/even_placement.h"

#include <algorithm>
#include <numeric>

#include "common/check.h"
#include "plan/shard_plan.h"

namespace pando {

std::vector<size_t> PlaceEvenly(const std::vector<uint64_t>& shard_bytes, size_t server_count) {
  PANDO_CHECK(server_count > 0);
  std::vector<size_t> order(shard_bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (server_count <= ShardPlan::kFewServers) {
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](size_t shard) { return shard_bytes[shard]; });
  }
  std::vector<uint64_t> server_bytes(server_count);
  std::vector<size_t> servers(shard_bytes.size());
  for (const size_t shard : order) {
    const auto emptiest = std::ranges::min_element(server_bytes);
    *emptiest += shard_bytes[shard];
    servers[shard] = static_cast<size_t>(emptiest - server_bytes.begin());
  }
  return servers;
}

}  // namespace pando
