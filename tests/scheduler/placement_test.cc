#include "scheduler/placement/placement.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

namespace pando {
namespace {

ShardPlan PlanOfTensors(std::vector<uint64_t> sizes) {
  std::vector<TensorSpec> specs;
  for (uint64_t size : sizes)
    specs.push_back({.name = "t" + std::to_string(specs.size()), .shape = {size}});
  return ShardPlan(TensorLayout(std::move(specs)));
}

PlacementServer ServerNumber(uint32_t number, const std::string& host = "h") {
  return {.peer = {NodeId(number), Incarnation(number + 100), 0}, .domain = host, .lane_count = 2};
}

size_t LargestShard(const ShardPlan& plan) {
  size_t largest = 0;
  for (const ShardRange& range : plan.ranges()) largest = std::max(largest, range.size());
  return largest;
}

// The difference between the fullest and the emptiest of the servers.
size_t Spread(const std::map<NodeId, size_t>& floats) {
  size_t least = SIZE_MAX, most = 0;
  for (const auto& [node, count] : floats) {
    least = std::min(least, count);
    most = std::max(most, count);
  }
  return most - least;
}

struct Floats {
  std::map<NodeId, size_t> replicas;
  std::map<NodeId, size_t> primaries;
};

Floats CountFloats(const ShardPlan& plan, const std::vector<PlacementServer>& servers,
                   const std::vector<ShardPlacement>& placements) {
  Floats floats;
  for (const PlacementServer& server : servers) {
    floats.replicas[server.peer.node] = 0;
    floats.primaries[server.peer.node] = 0;
  }
  for (uint32_t s = 0; s < placements.size(); ++s) {
    const size_t size = plan.range(ShardId(s)).size();
    floats.primaries[placements[s].primary.node] += size;
    floats.replicas[placements[s].primary.node] += size;
    for (const PeerId& backup : placements[s].in_sync_backups) floats.replicas[backup.node] += size;
  }
  return floats;
}

// Checks the rules that hold when nothing is syncing and no move is left.
void CheckAtRest(const ShardPlan& plan, const std::vector<PlacementServer>& servers,
                 uint32_t replicas, const std::vector<ShardPlacement>& placements) {
  std::set<NodeId> here;
  for (const PlacementServer& server : servers) here.insert(server.peer.node);
  const size_t wanted = std::min<size_t>(replicas, servers.size());
  for (const ShardPlacement& placement : placements) {
    std::set<NodeId> holders{placement.primary.node};
    for (const PeerId& backup : placement.in_sync_backups) holders.insert(backup.node);
    REQUIRE(placement.syncing_backups.empty());
    REQUIRE(holders.size() == wanted);
    REQUIRE(placement.in_sync_backups.size() + 1 == wanted);
    for (NodeId node : holders) REQUIRE(here.contains(node));
  }
  const Floats floats = CountFloats(plan, servers, placements);
  CHECK(Spread(floats.replicas) <= LargestShard(plan));
  CHECK(Spread(floats.primaries) <= LargestShard(plan));
}

void SyncAll(std::vector<ShardPlacement>& placements) {
  for (ShardPlacement& placement : placements) {
    for (const SyncingBackup& syncing : placement.syncing_backups)
      placement.in_sync_backups.push_back(syncing.peer);
    placement.syncing_backups.clear();
  }
}

// Moves until nothing is left to move. Returns the floats that were transferred.
size_t MoveToRest(const ShardPlan& plan, const std::vector<PlacementServer>& servers,
                  uint32_t replicas, std::vector<ShardPlacement>& placements) {
  size_t transferred = 0;
  uint64_t view = 10;
  while (MoveShards(plan, servers, {replicas, ViewId{1, ++view}, 20'000}, placements)) {
    REQUIRE(view < 1000);
    for (uint32_t s = 0; s < placements.size(); ++s)
      transferred += placements[s].syncing_backups.size() * plan.range(ShardId(s)).size();
    SyncAll(placements);
  }
  return transferred;
}

std::vector<std::vector<uint64_t>> TensorSizes() {
  return {{100'000, 17, 3000, 500'000, 10},
          {260, 16, 5120, 32, 16'000, 64, 512, 16, 2},
          std::vector<uint64_t>(64, 4096),
          {17}};
}

TEST_CASE("a first placement is even, with replicas on different servers") {
  for (const auto& sizes : TensorSizes()) {
    const ShardPlan plan = PlanOfTensors(sizes);
    for (uint32_t count : {1u, 2u, 3u, 7u}) {
      for (uint32_t replicas : {1u, 2u, 3u}) {
        CAPTURE(count);
        CAPTURE(replicas);
        CAPTURE(sizes.size());
        std::vector<PlacementServer> servers;
        for (uint32_t i = 1; i <= count; ++i) servers.push_back(ServerNumber(i));
        const auto placements = PlaceShards(plan, servers, replicas);
        REQUIRE(placements.size() == plan.shard_count());
        CheckAtRest(plan, servers, replicas, placements);
      }
    }
  }
}

TEST_CASE("among many servers each has as many lanes as its bytes need, however small the model") {
  for (const uint32_t count : {16u, 17u, 129u}) {
    std::vector<PlacementServer> servers;
    for (uint32_t i = 0; i < count; ++i) {
      servers.push_back(ServerNumber(i + 1));
      servers.back().lane_count = 8;
    }
    for (const uint64_t size : {uint64_t{1}, uint64_t{20'000'000}}) {
      CAPTURE(count);
      CAPTURE(size);
      const ShardPlan plan = PlanOfTensors({size});
      const size_t share = size * sizeof(float) / count;
      const size_t lanes_max = count <= 16 ? 8 : share / (1 << 20) + 1;
      for (const ShardPlacement& placement : PlaceShards(plan, servers, 2)) {
        CHECK(placement.primary.lane < lanes_max);
        REQUIRE(placement.in_sync_backups.size() == 1);
        CHECK(placement.in_sync_backups[0].lane < lanes_max);
      }
    }
  }
}

TEST_CASE("nothing moves where nothing is wrong") {
  const ShardPlan plan = PlanOfTensors(std::vector<uint64_t>(64, 4096));
  std::vector<PlacementServer> servers{ServerNumber(1), ServerNumber(2), ServerNumber(3)};
  auto placements = PlaceShards(plan, servers, 2);
  CHECK_FALSE(MoveShards(plan, servers, {2, ViewId{1, 2}, 20'000}, placements));
}

bool IsOn(const ShardPlacement& placement, NodeId node) {
  const auto is_it = [&](const PeerId& peer) { return peer.node == node; };
  return is_it(placement.primary) || std::ranges::any_of(placement.in_sync_backups, is_it);
}

class Lcg {
 public:
  uint64_t Below(uint64_t bound) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % bound;
  }

 private:
  uint64_t state_ = 1;
};

// A group of servers that grows and shrinks, and what it should cost.
class ServerGroup {
 public:
  ServerGroup(const ShardPlan& plan, uint32_t replicas) : plan_(plan), replicas_(replicas) {
    for (uint32_t i = 1; i <= 3; ++i) servers_.push_back(ServerNumber(i));
    placements_ = PlaceShards(plan, servers_, replicas);
  }
  void Join() {
    servers_.push_back(ServerNumber(next_++));
    const size_t total = plan_.ranges().back().last;
    // A replica of everything if there was none, else a share of all replicas.
    const size_t share = servers_.size() <= replicas_ ? total : total * replicas_ / servers_.size();
    Rest(share);
  }
  void Drain(size_t victim) {
    servers_[victim].is_leaving = true;
    const NodeId node = servers_[victim].peer.node;
    MoveToRest(plan_, servers_, replicas_, placements_);
    for (const ShardPlacement& placement : placements_) REQUIRE_FALSE(IsOn(placement, node));
    servers_.erase(servers_.begin() + static_cast<long>(victim));
    Rest(0);
  }
  void Kill(size_t victim) {
    size_t lost = 0;
    for (uint32_t s = 0; s < placements_.size(); ++s) {
      if (IsOn(placements_[s], servers_[victim].peer.node)) lost += plan_.ranges()[s].size();
    }
    servers_.erase(servers_.begin() + static_cast<long>(victim));
    if (DropLostReplicas(plan_, servers_, ViewId{1, 5}, placements_)) return Rest(lost);
    CHECK(replicas_ == 1);
    placements_ = PlaceShards(plan_, servers_, replicas_);
    Rest(0);
  }
  size_t size() const { return servers_.size(); }

 private:
  void Rest(size_t due) {
    const size_t moved = MoveToRest(plan_, servers_, replicas_, placements_);
    CHECK(moved <= due + LargestShard(plan_) * (servers_.size() + 1));
    CheckAtRest(plan_, servers_, replicas_, placements_);
  }
  const ShardPlan& plan_;
  const uint32_t replicas_;
  uint32_t next_ = 4;
  std::vector<PlacementServer> servers_;
  std::vector<ShardPlacement> placements_;
};

TEST_CASE("after any joins, leaves and deaths the rest is even, and little was moved") {
  Lcg chance;
  for (uint32_t run = 0; run < 100; ++run) {
    const ShardPlan plan = PlanOfTensors(TensorSizes()[run % 4]);
    ServerGroup group(plan, static_cast<uint32_t>(1 + chance.Below(2)));
    for (uint32_t change = 0; change < 20; ++change) {
      CAPTURE(run);
      CAPTURE(change);
      const uint64_t kind = group.size() == 1 ? 0 : chance.Below(3);
      const size_t victim = chance.Below(group.size());
      if (kind == 0) group.Join();
      if (kind == 1) group.Drain(victim);
      if (kind == 2) group.Kill(victim);
    }
  }
}

TEST_CASE("a joiner gets its share and no more") {
  const ShardPlan plan = PlanOfTensors(std::vector<uint64_t>(64, 4096));
  std::vector<PlacementServer> servers{ServerNumber(1), ServerNumber(2), ServerNumber(3)};
  auto placements = PlaceShards(plan, servers, 2);
  servers.push_back(ServerNumber(4));
  const size_t moved = MoveToRest(plan, servers, 2, placements);
  CHECK(moved <= 2 * plan.ranges().back().last / 4 + LargestShard(plan));
  CHECK(moved >= 2 * plan.ranges().back().last / 4 - LargestShard(plan));
  CheckAtRest(plan, servers, 2, placements);
}

TEST_CASE("replicas are on different hosts where there are several") {
  const ShardPlan plan = PlanOfTensors(std::vector<uint64_t>(64, 4096));
  std::vector<PlacementServer> servers{ServerNumber(1, "a"), ServerNumber(2, "a"),
                                       ServerNumber(3, "b"), ServerNumber(4, "b"),
                                       ServerNumber(5, "c")};
  const auto check = [&](const std::vector<ShardPlacement>& placements) {
    std::map<NodeId, std::string> hosts;
    for (const PlacementServer& server : servers) hosts[server.peer.node] = server.domain;
    for (const ShardPlacement& placement : placements) {
      REQUIRE(placement.in_sync_backups.size() == 1);
      CHECK(hosts[placement.primary.node] != hosts[placement.in_sync_backups[0].node]);
    }
  };
  auto placements = PlaceShards(plan, servers, 2);
  check(placements);
  servers.erase(servers.begin());
  REQUIRE(DropLostReplicas(plan, servers, ViewId{1, 5}, placements));
  MoveToRest(plan, servers, 2, placements);
  check(placements);
}

// As many hosts hold each shard as can be, after each join, death or avoided server.
void CheckHosts(const std::vector<PlacementServer>& servers, uint32_t replicas,
                const std::vector<ShardPlacement>& placements) {
  std::map<NodeId, std::string> hosts;
  std::set<std::string> all;
  for (const PlacementServer& server : servers) {
    hosts[server.peer.node] = server.domain;
    all.insert(server.domain);
  }
  const size_t replica_count = std::min<size_t>(replicas, servers.size());
  for (const ShardPlacement& placement : placements) {
    std::set<std::string> holding{hosts[placement.primary.node]};
    for (const PeerId& backup : placement.in_sync_backups) holding.insert(hosts[backup.node]);
    REQUIRE(placement.in_sync_backups.size() + 1 == replica_count);
    REQUIRE(holding.size() == std::min(replica_count, all.size()));
  }
}

TEST_CASE("a host with one server of three holds a replica of everything") {
  for (const auto& sizes : TensorSizes()) {  // in runs and evenly
    const ShardPlan plan = PlanOfTensors(sizes);
    const std::vector<PlacementServer> servers{ServerNumber(1, "a"), ServerNumber(2, "a"),
                                               ServerNumber(3, "b")};
    const auto placements = PlaceShards(plan, servers, 2);
    CheckHosts(servers, 2, placements);
    Floats floats = CountFloats(plan, servers, placements);
    CHECK(Spread(floats.primaries) <= LargestShard(plan));
    floats.replicas.erase(NodeId(3));
    CHECK(Spread(floats.replicas) <= LargestShard(plan));
  }
}

TEST_CASE("a server on another host takes replicas over from servers that share one") {
  for (const auto& sizes : TensorSizes()) {
    const ShardPlan plan = PlanOfTensors(sizes);
    std::vector<PlacementServer> servers{ServerNumber(1, "a"), ServerNumber(2, "a")};
    auto placements = PlaceShards(plan, servers, 2);
    servers.push_back(ServerNumber(3, "b"));
    const size_t moved = MoveToRest(plan, servers, 2, placements);
    CHECK(moved == plan.ranges().back().last);
    CheckHosts(servers, 2, placements);
  }
}

TEST_CASE("replicas stay together while the other host's server is avoided") {
  const ShardPlan plan = PlanOfTensors(std::vector<uint64_t>(64, 4096));
  std::vector<PlacementServer> servers{ServerNumber(1, "a"), ServerNumber(2, "a")};
  auto placements = PlaceShards(plan, servers, 2);
  servers.push_back(ServerNumber(3, "b"));
  servers[2].takes_more = false;
  CHECK(MoveToRest(plan, servers, 2, placements) == 0);
  for (const ShardPlacement& placement : placements) REQUIRE(placement.in_sync_backups.size() == 1);
}

TEST_CASE("replicas are on as many hosts as possible after all joins and deaths") {
  Lcg chance;
  for (uint32_t run = 0; run < 60; ++run) {
    const ShardPlan plan = PlanOfTensors(TensorSizes()[run % 4]);
    const auto replicas = static_cast<uint32_t>(2 + chance.Below(2));
    uint32_t next = 1;
    std::vector<PlacementServer> servers;
    const auto join = [&] {
      const std::string host(1, static_cast<char>('a' + chance.Below(3)));
      servers.push_back(ServerNumber(next++, host));
    };
    for (int i = 0; i < 3; ++i) join();
    auto placements = PlaceShards(plan, servers, replicas);
    CheckHosts(servers, replicas, placements);
    for (uint32_t change = 0; change < 12; ++change) {
      CAPTURE(run);
      CAPTURE(change);
      if (servers.size() == 2 || chance.Below(2) == 0) {
        join();
      } else {
        servers.erase(servers.begin() + static_cast<long>(chance.Below(servers.size())));
        REQUIRE(DropLostReplicas(plan, servers, ViewId{1, 5}, placements));
      }
      MoveToRest(plan, servers, replicas, placements);
      CheckHosts(servers, replicas, placements);
    }
  }
}

TEST_CASE("transfers to a newcomer are bounded, except for one shard") {
  const ShardPlan plan = PlanOfTensors(std::vector<uint64_t>(64, 4096));
  std::vector<PlacementServer> servers{ServerNumber(1), ServerNumber(2)};
  auto placements = PlaceShards(plan, servers, 1);
  servers.push_back(ServerNumber(3));
  MoveShards(plan, servers, {1, ViewId{1, 5}, 10'000}, placements);
  size_t syncing = 0;
  for (const ShardPlacement& placement : placements) syncing += placement.syncing_backups.size();
  CHECK(syncing == 2);
  placements = PlaceShards(plan, {servers[0], servers[1]}, 1);
  MoveShards(plan, servers, {1, ViewId{1, 5}, 10}, placements);
  syncing = 0;
  for (const ShardPlacement& placement : placements) syncing += placement.syncing_backups.size();
  CHECK(syncing == 1);
}

TEST_CASE("a promotion begins the transfers of its shard again") {
  const ShardPlan plan = PlanOfTensors({17});
  const PlacementServer a = ServerNumber(1), b = ServerNumber(2), c = ServerNumber(3);
  std::vector<ShardPlacement> placements{
      {.primary = a.peer, .in_sync_backups = {b.peer}, .syncing_backups = {{c.peer, {1, 2}}}}};
  REQUIRE(DropLostReplicas(plan, {b, c}, ViewId{1, 5}, placements));
  CHECK(placements[0].primary == b.peer);
  CHECK(placements[0].syncing_backups == std::vector<SyncingBackup>{{c.peer, {1, 5}}});
  CHECK_FALSE(DropLostReplicas(plan, {c}, ViewId{1, 6}, placements));
}

}  // namespace
}  // namespace pando
