#include "plan/even_placement.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace pando {
namespace {

std::vector<uint64_t> BytesOnServers(const std::vector<uint64_t>& shard_bytes,
                                     const std::vector<size_t>& servers, size_t shard_count,
                                     size_t server_count) {
  std::vector<uint64_t> bytes(server_count);
  for (size_t s = 0; s < shard_count; ++s) bytes[servers[s]] += shard_bytes[s];
  return bytes;
}

TEST_CASE("among few servers the largest shard is placed first") {
  CHECK(PlaceEvenly({1, 5, 2, 4}, 2) == std::vector<size_t>{0, 0, 1, 1});
  CHECK(PlaceEvenly({3, 3, 3}, 4) == std::vector<size_t>{0, 1, 2});
}

TEST_CASE("among many servers each prefix of the model is spread evenly") {
  // 25 million floats in three tensors, for 64 servers.
  const TensorLayout layout({{.name = "a", .shape = {1'000'000}},
                             {.name = "b", .shape = {20'000'000}},
                             {.name = "c", .shape = {4'000'000}},
                             MetricTensorSpec()});
  constexpr uint32_t kServers = 64;
  const ShardPlan shards(layout, {.servers_max = kServers});
  const std::vector<uint64_t> bytes = ShardBytes(shards);
  const std::vector<size_t> servers = PlaceEvenly(bytes, kServers);
  uint64_t largest = 0;
  for (size_t count = 1; count <= bytes.size(); ++count) {
    largest = std::max(largest, bytes[count - 1]);
    const auto on_servers = BytesOnServers(bytes, servers, count, kServers);
    const auto [least, most] = std::ranges::minmax(on_servers);
    CHECK(most - least <= largest);
  }
}

}  // namespace
}  // namespace pando
