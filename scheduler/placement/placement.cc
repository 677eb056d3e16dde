#include "scheduler/placement/placement.h"

#include <algorithm>
#include <map>
#include <set>

#include "common/check.h"
#include "plan/even_placement.h"

namespace pando {

namespace {

// Up to this many bytes per lane, messages determine the cost of a step, and beyond it bytes do.
constexpr size_t kRunBytesMax = 256 << 10;
constexpr size_t kLaneBytesMin = 1 << 20;  // among many servers

// Returns the servers that stay, so that neighbours are in different domains wherever possible.
std::vector<PlacementServer> InRing(const std::vector<PlacementServer>& servers) {
  std::map<std::string, size_t> count_of_domain;
  std::vector<std::pair<size_t, PlacementServer>> ring;
  for (const PlacementServer& server : servers) {
    if (!server.is_leaving) ring.emplace_back(count_of_domain[server.domain]++, server);
  }
  std::ranges::stable_sort(ring, {}, [](const auto& entry) { return entry.first; });
  std::vector<PlacementServer> ordered;
  for (auto& [round, server] : ring) ordered.push_back(std::move(server));
  return ordered;
}

// Returns the next `count` servers after `first`. Servers in a new domain come before others.
std::vector<size_t> BackupsInRing(const std::vector<PlacementServer>& ring, size_t first,
                                  size_t count) {
  std::set<std::string> domains{ring[first].domain};
  std::vector<size_t> next;
  std::vector<size_t> others;
  for (size_t i = 1; i < ring.size(); ++i) {
    const size_t server = (first + i) % ring.size();
    (domains.insert(ring[server].domain).second ? next : others).push_back(server);
  }
  std::ranges::copy(others, std::back_inserter(next));
  next.resize(count);
  return next;
}

// Gives each lane a run of neighbouring shards with about total / lanes floats. Backward finishes a
// lane's shards together, so they travel as one message, while the front of the model is computed.
// A lane's backups are on one lane of the next server in another domain.
std::vector<ShardPlacement> PlaceInRuns(const ShardPlan& plan,
                                        const std::vector<PlacementServer>& ring,
                                        uint32_t replicas) {
  const size_t total = plan.ranges().back().last;
  std::vector<ShardPlacement> placements;
  for (const ShardRange& range : plan.ranges()) {
    const size_t middle = (range.first + range.size() / 2) * ring.size();
    const size_t first = middle / total;
    const size_t lane = middle % total * ring[first].lane_count / total;
    ShardPlacement placement{.primary = OnLane(ring[first].peer, lane)};
    for (size_t backup : BackupsInRing(ring, first, replicas - 1))
      placement.in_sync_backups.push_back(
          OnLane(ring[backup].peer, lane % ring[backup].lane_count));
    placements.push_back(std::move(placement));
  }
  return placements;
}

// Returns how many lanes each server uses at first. Among many servers a lane that has little would
// cost each worker a connection and messages, so a server uses as many as its bytes need.
size_t LanesNeeded(const ShardPlan& plan, size_t server_count) {
  if (server_count <= ShardPlan::kFewServers) return SIZE_MAX;
  const size_t share = plan.ranges().back().last * sizeof(float) / server_count;
  return share / kLaneBytesMin + 1;
}

// Spreads the shards over the servers (plan/even_placement.h), and there over the lanes, so that
// all lanes have work during the whole backward pass.
std::vector<ShardPlacement> PlaceOnLanes(const ShardPlan& plan,
                                         const std::vector<PlacementServer>& ring) {
  const std::vector<uint64_t> bytes = ShardBytes(plan);
  const std::vector<size_t> servers = PlaceEvenly(bytes, ring.size());
  std::vector<std::vector<uint64_t>> lane_bytes;
  for (const PlacementServer& server : ring) lane_bytes.emplace_back(server.lane_count);
  std::vector<ShardPlacement> placements(plan.shard_count());
  for (const uint32_t shard : LargestFirst(bytes)) {
    auto& lanes = lane_bytes[servers[shard]];
    const auto lane = std::ranges::min_element(lanes) - lanes.begin();
    lanes[lane] += bytes[shard];
    placements[shard].primary = OnLane(ring[servers[shard]].peer, static_cast<size_t>(lane));
  }
  return placements;
}

}  // namespace

std::vector<ShardPlacement> PlaceShards(const ShardPlan& plan,
                                        const std::vector<PlacementServer>& servers,
                                        uint32_t replicas) {
  std::vector<PlacementServer> ring = InRing(servers);
  PANDO_CHECK(!ring.empty());
  for (PlacementServer& server : ring)
    server.lane_count =
        static_cast<uint16_t>(std::min<size_t>(server.lane_count, LanesNeeded(plan, ring.size())));
  const auto count = std::min(replicas, static_cast<uint32_t>(ring.size()));
  size_t lane_count = 0;
  for (const PlacementServer& server : ring) lane_count += server.lane_count;
  const size_t bytes = plan.ranges().back().last * sizeof(float);
  const bool is_small = ring.size() <= ShardPlan::kFewServers && bytes <= kRunBytesMax * lane_count;
  std::vector<ShardPlacement> placements =
      is_small ? PlaceInRuns(plan, ring, count) : PlaceOnLanes(plan, ring);
  const MoveOptions free{.replicas = count, .transfer_floats_max = SIZE_MAX};
  const size_t rounds_max = 4 * placements.size() + 4;
  for (size_t i = 0; i < rounds_max && MoveShards(plan, ring, free, placements); ++i) {
    for (ShardPlacement& placement : placements) {  // no replica has data yet, so all are in sync
      for (const SyncingBackup& syncing : placement.syncing_backups)
        placement.in_sync_backups.push_back(syncing.peer);
      placement.syncing_backups.clear();
    }
  }
  return placements;
}

bool DropLostReplicas(const ShardPlan& plan, const std::vector<PlacementServer>& servers,
                      ViewId next, std::vector<ShardPlacement>& placements) {
  std::map<PeerId, const PlacementServer*> living;
  for (const PlacementServer& server : servers) living[server.peer] = &server;
  const auto server_of = [](const PeerId& peer) { return OnLane(peer, 0); };
  const auto is_lost = [&](const PeerId& peer) { return !living.contains(server_of(peer)); };
  std::map<PeerId, size_t> primary_floats;
  for (size_t shard = 0; shard < placements.size(); ++shard)
    primary_floats[server_of(placements[shard].primary)] += plan.ranges()[shard].size();
  const auto goes_first = [&](const PeerId& a, const PeerId& b) {
    const bool a_leaves = living.at(server_of(a))->is_leaving;
    const bool b_leaves = living.at(server_of(b))->is_leaving;
    if (a_leaves != b_leaves) return b_leaves;
    return primary_floats[server_of(a)] < primary_floats[server_of(b)];
  };
  for (size_t shard = 0; shard < placements.size(); ++shard) {
    ShardPlacement& placement = placements[shard];
    std::erase_if(placement.in_sync_backups, is_lost);
    std::erase_if(placement.syncing_backups, [&](const auto& s) { return is_lost(s.peer); });
    if (!is_lost(placement.primary)) continue;
    std::vector<PeerId> heirs = placement.in_sync_backups;
    if (heirs.empty()) return false;
    const PeerId heir = *std::ranges::min_element(heirs, goes_first);
    primary_floats[server_of(heir)] += plan.ranges()[shard].size();
    Promote(placement, heir, next);
  }
  return true;
}

}  // namespace pando
