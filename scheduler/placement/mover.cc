// MoveShards decides which servers should hold each shard, and makes the moves that are possible.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>

#include "common/check.h"
#include "plan/even_placement.h"
#include "scheduler/placement/placement.h"

namespace pando {

namespace {

// With more shards than this, primaries are even enough without a search of all pairs.
constexpr size_t kPairedShardsMax = 512;

// Returns the sum of squares, which every shift of primaries lowers, so shifting ends.
double Unevenness(const std::vector<size_t>& floats) {
  double sum = 0;
  for (size_t f : floats) sum += static_cast<double>(f) * static_cast<double>(f);
  return sum;
}

// Returns the replicas of a shard that have its data, primary first.
std::vector<PeerId> InSync(const ShardPlacement& placement) {
  std::vector<PeerId> replicas{placement.primary};
  std::ranges::copy(placement.in_sync_backups, std::back_inserter(replicas));
  return replicas;
}

// Mover decides which servers should hold each shard, with as few changes as possible, and makes
// the moves towards that which are possible now.
class Mover {
 public:
  Mover(const ShardPlan& plan, const std::vector<PlacementServer>& servers,
        const MoveOptions& options, std::vector<ShardPlacement>& placements)
      : plan_(plan),
        servers_(servers),
        options_(options),
        placements_(placements),
        largest_(std::ranges::max(plan.ranges(), {}, &ShardRange::size).size()),
        wanted_(placements.size()),
        floats_(servers.size()),
        primaries_(servers.size()) {
    std::set<std::string> domains;
    for (size_t i = 0; i < servers.size(); ++i) {
      index_[servers[i].peer.node] = i;
      if (Stays(i)) domains.insert(servers[i].domain);
    }
    domain_count_ = domains.size();
  }

  bool Move() {
    TakeStock();
    for (size_t shard = 0; shard < wanted_.size(); ++shard) TrimShard(shard);
    const std::vector<uint32_t> order = LargestFirst(ShardBytes(plan_));
    for (uint32_t shard : order) SpreadShard(shard);
    for (uint32_t shard : order) FillShard(shard);
    // Each shift evens out two servers, so the loop ends. The bound is a second guard.
    for (size_t i = 0; i < wanted_.size() * options_.replicas && EvenOut(); ++i) {
    }
    const bool has_removed = RemoveReplicas();
    const bool has_added = AddReplicas();
    if (has_removed || has_added) return true;
    const bool is_syncing = std::ranges::any_of(
        placements_, [](const ShardPlacement& p) { return !p.syncing_backups.empty(); });
    return !is_syncing && EvenOutPrimaries();
  }

 private:
  static constexpr size_t kNoServer = SIZE_MAX;
  using Holders = std::vector<size_t>;  // indices of servers

  size_t ShardFloats(size_t shard) const { return plan_.ranges()[shard].size(); }
  bool Stays(size_t server) const { return !servers_[server].is_leaving; }
  size_t ServerIndex(const PeerId& peer) const {
    const auto it = index_.find(peer.node);
    return it == index_.end() ? kNoServer : it->second;
  }

  void TakeStock() {
    for (size_t shard = 0; shard < placements_.size(); ++shard) {
      const ShardPlacement& placement = placements_[shard];
      std::vector<PeerId> all = InSync(placement);
      for (const SyncingBackup& syncing : placement.syncing_backups) all.push_back(syncing.peer);
      for (const PeerId& peer : all) {
        const size_t server = ServerIndex(peer);
        PANDO_CHECK(server != kNoServer);
        lane_floats_[peer] += ShardFloats(shard);
        if (!Stays(server)) continue;
        wanted_[shard].push_back(server);
        floats_[server] += ShardFloats(shard);
      }
      primaries_[ServerIndex(placement.primary)] += ShardFloats(shard);
    }
  }

  // Removes surplus holders: first one of a domain that has two, then the fullest server.
  void TrimShard(size_t shard) {
    Holders& holders = wanted_[shard];
    while (holders.size() > options_.replicas) {
      const auto goes_first = [&](size_t a, size_t b) {
        const bool a_shares = SharesDomain(a, holders, a);
        const bool b_shares = SharesDomain(b, holders, b);
        if (a_shares != b_shares) return b_shares;
        if (IsNewcomer(shard, a) != IsNewcomer(shard, b)) return IsNewcomer(shard, a);
        return floats_[a] < floats_[b];
      };
      const auto fullest = std::ranges::max_element(holders, goes_first);
      floats_[*fullest] -= ShardFloats(shard);
      holders.erase(fullest);
    }
  }

  bool HasData(size_t shard, size_t server) const {
    return std::ranges::any_of(InSync(placements_[shard]),
                               [&](const PeerId& peer) { return ServerIndex(peer) == server; });
  }

  bool IsNewcomer(size_t shard, size_t server) const {
    return std::ranges::any_of(placements_[shard].syncing_backups,
                               [&](const auto& s) { return ServerIndex(s.peer) == server; });
  }

  // If two holders share a domain, replaces one of them by a server of a domain without a holder: a
  // newcomer if there is one, else the fuller one.
  void SpreadShard(size_t shard) {
    Holders& holders = wanted_[shard];
    while (CountDomains(holders) < std::min(holders.size(), domain_count_)) {
      Holders crowded = holders;
      std::erase_if(crowded, [&](size_t server) { return !SharesDomain(server, holders, server); });
      const size_t gone = *std::ranges::max_element(crowded, [&](size_t a, size_t b) {
        if (IsNewcomer(shard, a) != IsNewcomer(shard, b)) return IsNewcomer(shard, b);
        return floats_[a] < floats_[b];
      });
      const size_t instead = EmptiestFor(holders, gone);
      if (instead == kNoServer) return;  // no server of such a domain takes shards now
      std::ranges::replace(holders, gone, instead);
      floats_[gone] -= ShardFloats(shard);
      floats_[instead] += ShardFloats(shard);
    }
  }

  bool SharesDomain(size_t server, const Holders& holders, size_t instead_of = kNoServer) const {
    return std::ranges::any_of(holders, [&](size_t other) {
      return other != instead_of && servers_[other].domain == servers_[server].domain;
    });
  }

  size_t CountDomains(const Holders& holders, size_t instead_of = kNoServer) const {
    size_t count = 0;
    for (auto it = holders.begin(); it != holders.end(); ++it) {
      const auto is_on_it = [&](size_t other) {
        return other != instead_of && servers_[other].domain == servers_[*it].domain;
      };
      count += *it != instead_of && std::none_of(holders.begin(), it, is_on_it);
    }
    return count;
  }

  // Returns whether a server could hold a shard with the other `holders`, except `instead_of`. Two
  // holders share a domain only if every domain has a holder.
  bool MayHold(size_t server, const Holders& holders, size_t instead_of) const {
    if (!Stays(server) || !servers_[server].takes_more) return false;
    if (std::ranges::find(holders, server) != holders.end()) return false;
    return !SharesDomain(server, holders, instead_of) ||
           CountDomains(holders, instead_of) == domain_count_;
  }

  size_t EmptiestFor(const Holders& holders, size_t instead_of) const {
    size_t best = kNoServer;
    for (size_t server = 0; server < servers_.size(); ++server) {
      if (!MayHold(server, holders, instead_of)) continue;
      if (best == kNoServer || floats_[server] < floats_[best]) best = server;
    }
    return best;
  }

  void FillShard(size_t shard) {
    Holders& holders = wanted_[shard];
    while (holders.size() < options_.replicas) {
      const size_t best = EmptiestFor(holders, kNoServer);
      if (best == kNoServer) return;
      holders.push_back(best);
      floats_[best] += ShardFloats(shard);
    }
  }

  // Returns the pairs of staying servers that differ by more than a shard, most different first.
  std::vector<std::pair<size_t, size_t>> UnevenPairs(const std::vector<size_t>& floats) const {
    std::vector<std::pair<size_t, size_t>> pairs;
    for (size_t from = 0; from < servers_.size(); ++from) {
      for (size_t to = 0; to < servers_.size(); ++to) {
        const bool is_uneven = floats[from] > floats[to] + largest_;
        if (Stays(from) && Stays(to) && is_uneven) pairs.emplace_back(from, to);
      }
    }
    std::ranges::stable_sort(pairs, std::ranges::greater(), [&](const auto& pair) {
      return floats[pair.first] - floats[pair.second];
    });
    return pairs;
  }

  // Shifts one shard from a fuller server to an emptier one, the most different pair first.
  bool EvenOut() {
    for (const auto& [from, to] : UnevenPairs(floats_)) {
      const std::optional<size_t> shard = ShardToShift(from, to);
      if (!shard) continue;
      std::ranges::replace(wanted_[*shard], from, to);
      floats_[from] -= ShardFloats(*shard);
      floats_[to] += ShardFloats(*shard);
      return true;
    }
    return false;
  }

  // Returns a shard that `from` should hold and has no data of, if there is one; else a shard of
  // about half the difference.
  std::optional<size_t> ShardToShift(size_t from, size_t to) const {
    const size_t half = (floats_[from] - floats_[to]) / 2;
    std::optional<size_t> best;
    size_t best_cost = 0;
    for (size_t shard = 0; shard < wanted_.size(); ++shard) {
      if (std::ranges::find(wanted_[shard], from) == wanted_[shard].end()) continue;
      if (!MayHold(to, wanted_[shard], from)) continue;
      const size_t size = ShardFloats(shard);
      const size_t distance = size > half ? size - half : half - size;
      const size_t cost = distance + (HasData(shard, from) ? plan_.ranges().back().last : 0);
      if (!best || cost < best_cost) {
        best = shard;
        best_cost = cost;
      }
    }
    return best;
  }

  // Returns the emptiest of the server's lanes.
  PeerId LaneFor(size_t server) const {
    std::vector<PeerId> lanes;
    for (uint16_t lane = 0; lane < servers_[server].lane_count; ++lane)
      lanes.push_back(OnLane(servers_[server].peer, lane));
    return *std::ranges::min_element(lanes, {}, [&](const PeerId& lane) {
      const auto it = lane_floats_.find(lane);
      return it == lane_floats_.end() ? 0 : it->second;
    });
  }

  // Adds the wanted replicas, shards with the fewest replicas first.
  bool AddReplicas() {
    std::vector<size_t> in_transfer(servers_.size());
    std::vector<size_t> order(wanted_.size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t shard = 0; shard < placements_.size(); ++shard) {
      for (const SyncingBackup& syncing : placements_[shard].syncing_backups)
        in_transfer[ServerIndex(syncing.peer)] += ShardFloats(shard);
    }
    std::ranges::stable_sort(order, [&](size_t a, size_t b) {
      return placements_[a].in_sync_backups.size() < placements_[b].in_sync_backups.size();
    });
    bool has_added = false;
    for (size_t shard : order) {
      ShardPlacement& placement = placements_[shard];
      for (size_t server : wanted_[shard]) {
        if (IsNewcomer(shard, server) || HasData(shard, server)) continue;
        size_t& floats = in_transfer[server];
        if (floats != 0 && floats + ShardFloats(shard) > options_.transfer_floats_max) continue;
        floats += ShardFloats(shard);
        const PeerId lane = LaneFor(server);
        lane_floats_[lane] += ShardFloats(shard);
        placement.syncing_backups.push_back({lane, options_.next});
        has_added = true;
      }
    }
    return has_added;
  }

  bool RemoveReplicas() {
    bool has_removed = false;
    for (size_t shard = 0; shard < placements_.size(); ++shard) has_removed |= Settle(shard);
    return has_removed;
  }

  // Drops a shard's unwanted replicas: newcomers at once, others when all wanted ones are in sync.
  bool Settle(size_t shard) {
    ShardPlacement& placement = placements_[shard];
    const Holders& wanted = wanted_[shard];
    const auto is_wanted = [&](const PeerId& peer) {
      return std::ranges::find(wanted, ServerIndex(peer)) != wanted.end();
    };
    const auto is_unwanted = [&](const PeerId& peer) { return !is_wanted(peer); };
    bool has_removed = std::erase_if(placement.syncing_backups,
                                     [&](const auto& s) { return is_unwanted(s.peer); }) != 0;
    const std::vector<PeerId> in_sync = InSync(placement);
    const auto wanted_in_sync = static_cast<size_t>(std::ranges::count_if(in_sync, is_wanted));
    if (wanted.empty() || wanted_in_sync != wanted.size()) return has_removed;
    if (is_unwanted(placement.primary)) {
      std::vector<PeerId> heirs = placement.in_sync_backups;
      std::erase_if(heirs, is_unwanted);
      const PeerId heir = *std::ranges::min_element(
          heirs, {}, [&](const PeerId& peer) { return primaries_[ServerIndex(peer)]; });
      primaries_[ServerIndex(placement.primary)] -= ShardFloats(shard);
      primaries_[ServerIndex(heir)] += ShardFloats(shard);
      Promote(placement, heir, options_.next);
      has_removed = true;
    }
    has_removed |= std::erase_if(placement.in_sync_backups, is_unwanted) != 0;
    return has_removed;
  }

  // Promotes backups while two servers' primaries differ by more than a shard: from the fullest
  // server to an emptier one, over servers in between if needed.
  bool EvenOutPrimaries() {
    bool has_moved = false;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      const auto pairs = UnevenPairs(primaries_);
      const bool has_shifted =
          std::ranges::any_of(
              pairs, [&](const auto& pair) { return ShiftPrimary(pair.first, pair.second); }) ||
          (!pairs.empty() && ShiftTwoPrimaries());
      if (!has_shifted) return has_moved;
      has_moved = true;
    }
    return has_moved;
  }

  // Finds a shortest path of promotions, breadth first: each step moves a shard's lead to one of
  // its backups. Servers in between keep their floats, except for the difference of two shards.
  // Makes the promotions if they even out.
  bool ShiftPrimary(size_t from, size_t to) {
    struct Hop {
      size_t shard = 0;
      size_t server = 0;  // the server that was its primary
    };
    std::map<size_t, Hop> reached{{from, {}}};
    std::vector<size_t> queue{from};
    for (size_t i = 0; i < queue.size() && !reached.contains(to); ++i) {
      for (size_t shard = 0; shard < placements_.size(); ++shard) {
        if (ServerIndex(placements_[shard].primary) != queue[i]) continue;
        for (const PeerId& backup : placements_[shard].in_sync_backups) {
          const size_t server = ServerIndex(backup);
          if (!Stays(server) || !reached.try_emplace(server, Hop{shard, queue[i]}).second) continue;
          queue.push_back(server);
        }
      }
    }
    if (!reached.contains(to)) return false;
    std::vector<size_t> after = primaries_;
    for (size_t server = to; server != from; server = reached[server].server) {
      after[reached[server].server] -= ShardFloats(reached[server].shard);
      after[server] += ShardFloats(reached[server].shard);
    }
    if (Unevenness(after) >= Unevenness(primaries_)) return false;
    primaries_ = after;
    for (size_t server = to; server != from; server = reached[server].server)
      GiveLead(reached[server].shard, server);
    return true;
  }

  // Makes two promotions that even out together, if no shortest path does. The second begins at the
  // server where the first ends. They may exchange two shards of different size.
  bool ShiftTwoPrimaries() {
    if (placements_.size() > kPairedShardsMax) return false;
    for (size_t a = 0; a < placements_.size(); ++a) {
      for (const PeerId& heir : std::vector(placements_[a].in_sync_backups)) {
        if (Stays(ServerIndex(heir)) && ShiftAfter(a, ServerIndex(heir))) return true;
      }
    }
    return false;
  }

  // Finds a second promotion after that of `first` to `via`, and makes both if they even out.
  bool ShiftAfter(size_t first, size_t via) {
    const size_t from = ServerIndex(placements_[first].primary);
    for (size_t second = 0; second < placements_.size(); ++second) {
      if (second == first || ServerIndex(placements_[second].primary) != via) continue;
      for (const PeerId& heir : placements_[second].in_sync_backups) {
        const size_t to = ServerIndex(heir);
        std::vector<size_t> after = primaries_;
        after[from] -= ShardFloats(first);
        after[via] += ShardFloats(first);
        after[via] -= ShardFloats(second);
        after[to] += ShardFloats(second);
        if (!Stays(to) || Unevenness(after) >= Unevenness(primaries_)) continue;
        primaries_ = after;
        GiveLead(first, via);
        GiveLead(second, to);
        return true;
      }
    }
    return false;
  }

  // Makes the primary a backup of its in-sync backup on `server`.  REQUIRES: there is one.
  void GiveLead(size_t shard, size_t server) {
    ShardPlacement& placement = placements_[shard];
    const PeerId before = placement.primary;
    const auto heir = std::ranges::find_if(
        placement.in_sync_backups, [&](const PeerId& peer) { return ServerIndex(peer) == server; });
    Promote(placement, PeerId(*heir), options_.next);
    placement.in_sync_backups.push_back(before);
  }

  const ShardPlan& plan_;
  const std::vector<PlacementServer>& servers_;
  const MoveOptions& options_;
  std::vector<ShardPlacement>& placements_;
  const size_t largest_;
  std::map<NodeId, size_t> index_;
  size_t domain_count_ = 0;        // the domains of servers that stay
  std::vector<Holders> wanted_;    // the servers that should hold each shard
  std::vector<size_t> floats_;     // by server: the floats of the shards that it should hold
  std::vector<size_t> primaries_;  // by server: the floats of the shards that it leads
  std::map<PeerId, size_t> lane_floats_;
};

}  // namespace

void Promote(ShardPlacement& placement, PeerId backup, ViewId next) {
  std::erase(placement.in_sync_backups, backup);
  std::erase_if(placement.syncing_backups, [&](const auto& s) { return s.peer == backup; });
  placement.primary = backup;
  for (SyncingBackup& syncing : placement.syncing_backups) syncing.since = next;
}

bool MoveShards(const ShardPlan& plan, const std::vector<PlacementServer>& servers,
                const MoveOptions& options, std::vector<ShardPlacement>& placements) {
  const auto staying =
      std::ranges::count_if(servers, [](const PlacementServer& s) { return !s.is_leaving; });
  PANDO_CHECK(staying > 0);
  MoveOptions possible = options;
  possible.replicas = std::min(options.replicas, static_cast<uint32_t>(staying));
  return Mover(plan, servers, possible, placements).Move();
}

}  // namespace pando
