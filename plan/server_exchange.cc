#include "plan/server_exchange.h"

#include <algorithm>
#include <utility>

#include "plan/even_placement.h"
#include "plan/group_bytes.h"
#include "plan/link_simulation.h"

namespace pando {
namespace {

// A root shares a link with the pushes and replies of a whole model, but has its own connection. So
// it does not wait behind all of them.
constexpr uint32_t kRootRank = 0;
// A server handles received messages in the order of their arrival, and sends when none waits. A
// worker handles what it sends and what it receives in the order in which they come.
constexpr uint32_t kFirstRank = 0;

// Between pieces of a group's copies, or of its messages, a server handles more urgent ones.
constexpr uint32_t kCopyPieces = 64;
constexpr uint32_t kMessagePieces = 8;

// A hub is a server or a relay. Hop is a step on the way of a group between workers' hosts and a
// hub, in either direction. All hosts are alike, and so are all racks.
struct Hop {
  double hosts = 0;     // whose workers share the messages with this hub
  double messages = 0;  // of the hub, for each group
  double copies = 0;    // of these, the ones that cross the hub's link: not those within its host
  double uplink_copies = 0;  // of these, the ones that cross two racks' uplinks
};

// The racks of a cluster, and the hops of a push. A reply takes the same ones in the opposite
// order.
struct Hops {
  double racks = 1;
  double uplink = 1;  // what a rack's uplink carries in each direction, as a multiple of a host's
  Hop give;           // to the relay, of the share of shards whose servers are in other racks (P6a)
  Hop relayed;        // from the other racks' relays to a server
  Hop direct;         // from the server's rack, or from all racks
  Hop root;           // to a backup
};

Hops MakeHops(const Cluster& cluster, ServerPlace place) {
  const bool is_shared = place == ServerPlace::kWorkersHosts;
  const double hosts = cluster.host_count();
  const double copies = cluster.copies_per_host();
  const double at_home = is_shared ? copies : 0;
  Hops hops{.racks = static_cast<double>(cluster.rack_count())};
  const double rack = hosts / hops.racks;
  hops.uplink = rack * (1 + (is_shared ? 0 : cluster.servers / hosts)) / cluster.oversubscription;
  hops.root = {hosts, 1, 1, hops.racks > 1 ? 1.0 : 0.0};
  if (!cluster.has_relays()) {
    hops.direct = {hosts, copies * hosts, copies * hosts - at_home, copies * (hosts - rack)};
    return hops;
  }
  const double away = 1 - rack / hosts;
  hops.give = {rack, (copies * rack - 1) * away, copies * (rack - 1) * away, 0};
  const double sums = (hops.racks - 1) * cluster.rack_pushes;
  hops.relayed = {hosts, sums, sums, sums};
  hops.direct = {hosts, copies * rack, copies * rack - at_home, 0};
  return hops;
}

// MessageGroup is the shards of one hub that one message carries, the last one first.
struct MessageGroup {
  size_t hub = 0;
  uint64_t bytes = 0;
  std::vector<size_t> shards;
};

// Cuts each hub's shards from the back. A server counts as one lane. `is_alone`: each shard is a
// group.
std::vector<MessageGroup> MakeGroups(const StepWork& work, const std::vector<size_t>& hubs,
                                     bool is_alone) {
  const size_t hub_count = hubs.empty() ? 0 : std::ranges::max(hubs) + 1;
  std::vector<uint64_t> hub_bytes(hub_count);
  for (size_t s = 0; s < hubs.size(); ++s) hub_bytes[hubs[s]] += work.shards[s].bytes;
  std::vector<MessageGroup> groups;
  std::vector<size_t> open(hub_count, SIZE_MAX);
  for (size_t s = hubs.size(); s-- > 0;) {
    size_t& group = open[hubs[s]];
    const uint64_t close_at = is_alone ? 0 : GroupBytes(hub_bytes[hubs[s]]);
    if (group == SIZE_MAX || groups[group].bytes >= close_at) {
      group = groups.size();
      groups.push_back({.hub = hubs[s], .bytes = 0, .shards = {}});
    }
    groups[group].bytes += work.shards[s].bytes;
    groups[group].shards.push_back(s);
  }
  return groups;
}

// One host, one worker and one rack stand for all. Each hub has links and a queue of messages. A
// hub on a worker's host also loads that host's links, by the mean of all hubs, and a relay also
// loads its worker's queue.
class ServerExchange {
 public:
  // `work` and `cluster` outlive it.
  ServerExchange(const StepWork& work, const Cluster& cluster, ServerPlace place)
      : work_(work),
        cluster_(cluster),
        hops_(MakeHops(cluster, place)),
        is_shared_(place == ServerPlace::kWorkersHosts),
        server_count_(is_shared_ ? cluster.host_count() : cluster.servers),
        relay_count_(cluster.has_relays() ? cluster.copies_per_rack() : 0),
        replicas_(std::min(cluster.replicas, server_count_)),
        group_of_(work.shards.size()),
        links_(kLinks * (kFirstHub + server_count_ + relay_count_)) {
    std::vector<uint64_t> bytes;
    for (const StepShard& shard : work.shards) bytes.push_back(shard.bytes);
    std::vector<size_t> hubs = PlaceEvenly(bytes, server_count_);
    groups_ = MakeGroups(work, hubs, /*is_alone=*/!cluster.costs.has_any());
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (const size_t shard : groups_[g].shards) group_of_[shard] = g;
    }
    if (relay_count_ == 0) return;
    for (size_t& hub : hubs) hub = RelayFor(hub);
    gives_ = MakeGroups(work, hubs, /*is_alone=*/!cluster.costs.has_any());
  }

  // Must be called once.
  Exchange Run(const std::vector<std::vector<double>>& ready_ms) {
    const size_t routes = relay_count_ > 0 ? 2 : 1;
    states_.assign(groups_.size(),
                   {.pushes_owed = routes * ready_ms.size(), .replicas_owed = replicas_});
    gives_owed_.resize(ready_ms.size());
    for (size_t i = 0; i < ready_ms.size(); ++i) {  // if ready together, the last layer is first
      for (size_t g = 0; g < groups_.size(); ++g) {
        gives_owed_[i].push_back(groups_[g].shards.size());
        AtReady(groups_[g], ready_ms[i],
                [this, g] { Push(groups_[g], hops_.direct, [this, g] { OnPush(g); }); });
      }
      for (const MessageGroup& give : gives_) {
        AtReady(give, ready_ms[i], [this, &give, i] {
          Push(give, hops_.give, [this, &give, i] { OnGive(give, i); });
        });
      }
    }
    links_.Run();
    Exchange exchange{.arrivals_ms = std::vector<double>(work_.shards.size())};
    for (size_t s = 0; s < group_of_.size(); ++s)
      exchange.arrivals_ms[s] = states_[group_of_[s]].arrived_ms;
    for (size_t place = kHost; place < kFirstHub + server_count_ + relay_count_; ++place)
      exchange.link_ms = std::max(
          {exchange.link_ms, links_.busy_ms(At(place, kOut)), links_.busy_ms(At(place, kIn))});
    return exchange;
  }

 private:
  using Action = LinkSimulation::Action;
  using Legs = std::vector<LinkSimulation::Leg>;
  struct GroupState {
    size_t pushes_owed = 0;      // of each worker or relay, until the root is complete
    uint32_t replicas_owed = 0;  // until its version is committed
    double arrived_ms = 0;
  };
  // The servers' hubs are before the relays'.
  enum Place : size_t { kHost, kRack, kFirstHub };
  enum Link : size_t { kOut, kIn, kCopies, kMessages, kUpdates, kLinks };
  static size_t At(size_t place, Link link) { return kLinks * place + link; }

  bool IsRelay(size_t hub) const { return hub >= server_count_; }
  size_t RelayFor(size_t server) const { return server_count_ + server % relay_count_; }
  // Returns a hub's place, together with that of its host if workers share it.
  std::vector<size_t> PlacesFor(size_t hub) const {
    if (is_shared_ || IsRelay(hub)) return {kHost, kFirstHub + hub};
    return {kFirstHub + hub};
  }

  double WireMs(const MessageGroup& group) const {
    return static_cast<double>(group.bytes) / cluster_.bytes_per_ms;
  }
  uint32_t SendRank(const MessageGroup& group) const {
    const size_t front = group.shards.back();
    return 1 + (cluster_.order == SendOrder::kAsReady ? 0 : static_cast<uint32_t>(front));
  }
  // Returns how many of a hop's messages, for each group, one worker sends or receives.
  double PerWorker(const Hop& hop) const {
    return hop.messages / (hop.hosts * cluster_.copies_per_host());
  }

  // Adds the time at one end for `count` messages with the group: one thread copies their bytes,
  // and another one handles them, at the same time.
  void AddMessages(size_t place, const MessageGroup& group, double count, uint32_t rank,
                   double sum_ms_per_byte, Legs* legs) const {
    const Costs& costs = cluster_.costs;
    const auto bytes = static_cast<double>(group.bytes);
    const auto items = static_cast<double>(group.shards.size());
    const auto pieces = static_cast<uint32_t>(std::clamp<double>(count, 1, kMessagePieces));
    const auto add = [&](Link link, double ms) {
      if (ms > 0)
        legs->push_back({{At(place, link), count * ms, rank, pieces}, /*first_ms=*/ms, ms});
    };
    add(kCopies, costs.copy_ms_per_byte * bytes);
    add(kMessages, costs.message_ms + costs.item_ms * items + sum_ms_per_byte * bytes);
  }

  // Adds the links between a host and a hub, or two servers. A transfer occupies them at the same
  // time: a hub's for all copies, those of a host or a rack for its part. A hub on a worker's host
  // uses both. The next leg can begin when the first copy is complete.
  void AddWires(const MessageGroup& group, const Hop& hop, std::vector<size_t> from,
                std::vector<size_t> to, uint32_t rank, Legs* legs) const {
    if (hop.copies <= 0) return;
    if (hop.uplink_copies > 0) {
      from.push_back(kRack);
      to.insert(to.begin(), kRack);
    }
    double last_ms = WireMs(group);  // the last message follows its processor's time
    const auto add = [&](size_t place, Link link) {
      LinkSimulation::Task task{At(place, link), hop.copies * WireMs(group), rank};
      if (place == kHost) {
        task.service_ms /= hop.hosts;
      } else if (place == kRack) {
        task.service_ms = hop.uplink_copies * WireMs(group) / (hops_.racks * hops_.uplink);
      } else if (is_shared_ || IsRelay(place - kFirstHub)) {
        task.pieces = static_cast<uint32_t>(std::clamp<double>(hop.copies, 1, kCopyPieces));
      }
      legs->push_back({task, /*first_ms=*/0, std::exchange(last_ms, 0)});
    };
    for (const size_t place : from) add(place, kOut);
    legs->back().first_ms = last_ms = cluster_.latency_ms;
    for (const size_t place : to) add(place, kIn);
    legs->back().first_ms = WireMs(group);
  }

  void AtReady(const MessageGroup& group, const std::vector<double>& ready_ms, Action action) {
    double ms = 0;
    for (const size_t shard : group.shards) ms = std::max(ms, ready_ms[shard]);
    links_.At(ms, std::move(action));
  }

  void Push(const MessageGroup& group, const Hop& hop, Action on_arrival) {
    const double sum_ms_per_byte = cluster_.costs.sum_ms_per_byte;
    Legs legs;
    AddMessages(kHost, group, PerWorker(hop), kFirstRank, 0, &legs);
    AddWires(group, hop, {kHost}, PlacesFor(group.hub), SendRank(group), &legs);
    AddMessages(kFirstHub + group.hub, group, hop.messages, kFirstRank, sum_ms_per_byte, &legs);
    if (IsRelay(group.hub))
      AddMessages(kHost, group, PerWorker(hop), kFirstRank, sum_ms_per_byte, &legs);
    links_.Pass(std::move(legs), std::move(on_arrival));
  }

  // P6a. A relay has a complete sum of a shard, and pushes it with the rest of the server's group.
  void OnGive(const MessageGroup& give, size_t contribution) {
    for (const size_t shard : give.shards) {
      const size_t g = group_of_[shard];
      if (--gives_owed_[contribution][g] > 0) continue;
      Push(groups_[g], hops_.relayed, [this, g] { OnPush(g); });
    }
  }

  void OnPush(size_t g) {
    if (--states_[g].pushes_owed == 0) Replicate(g);
  }

  // P8. The root goes to the backups first, and all replicas make the version at the same time. A
  // backup's message back is its acknowledgement.
  void Replicate(size_t g) {
    const MessageGroup& group = groups_[g];
    const size_t primary = group.hub;
    const MessageGroup answer{.hub = primary, .bytes = 0, .shards = group.shards};
    const auto on_made = [this, g] {
      if (--states_[g].replicas_owed == 0) OnCommit(g);
    };
    for (uint32_t i = 1; i < replicas_; ++i) {
      const size_t backup = (primary + i) % server_count_;
      Legs legs;
      AddMessages(kFirstHub + primary, group, 1, SendRank(group), 0, &legs);
      AddWires(group, hops_.root, PlacesFor(primary), PlacesFor(backup), kRootRank, &legs);
      AddMessages(kFirstHub + backup, group, 1, kFirstRank, 0, &legs);
      AddMessages(kFirstHub + backup, answer, 1, kFirstRank, 0, &legs);
      Legs back;
      AddMessages(kFirstHub + primary, answer, 1, kFirstRank, 0, &back);
      links_.Pass(std::move(legs), [this, g, backup, back = std::move(back), on_made] {
        Make(g, backup, [this, back, on_made] {
          links_.At(links_.now_ms() + cluster_.latency_ms,
                    [this, back, on_made] { links_.Pass(back, on_made); });
        });
      });
    }
    Make(g, primary, on_made);
  }

  void Make(size_t g, size_t server, Action on_made) {
    const double update_ms = work_.optimizer_ms * static_cast<double>(groups_[g].bytes) /
                             static_cast<double>(GradientBytes(work_));
    links_.Use({At(kFirstHub + server, kUpdates), update_ms, SendRank(groups_[g])}, nullptr,
               std::move(on_made));
  }

  void OnCommit(size_t g) {
    const size_t server = groups_[g].hub;
    const auto on_arrival = [this, g] { states_[g].arrived_ms = links_.now_ms(); };
    Reply(g, server, hops_.direct, on_arrival);
    if (relay_count_ == 0) return;
    Reply(g, server, hops_.relayed, [this, g, relay = RelayFor(server), on_arrival] {
      Reply(g, relay, hops_.give, on_arrival);
    });
  }

  void Reply(size_t g, size_t hub, const Hop& hop, Action on_arrival) {
    const MessageGroup& group = groups_[g];
    const uint32_t rank = SendRank(group);
    Legs legs;
    if (IsRelay(hub)) AddMessages(kHost, group, PerWorker(hop), kFirstRank, 0, &legs);
    AddMessages(kFirstHub + hub, group, hop.messages, IsRelay(hub) ? kFirstRank : rank, 0, &legs);
    AddWires(group, hop, PlacesFor(hub), {kHost}, rank, &legs);
    AddMessages(kHost, group, PerWorker(hop), kFirstRank, 0, &legs);  // the last worker's
    links_.Pass(std::move(legs), std::move(on_arrival));
  }

  const StepWork& work_;
  const Cluster& cluster_;
  Hops hops_;
  bool is_shared_;  // the servers are on the workers' hosts
  uint32_t server_count_;
  size_t relay_count_;  // in a rack
  uint32_t replicas_;
  std::vector<size_t> group_of_;                 // by shard
  std::vector<MessageGroup> groups_;             // of servers
  std::vector<MessageGroup> gives_;              // of relays
  std::vector<std::vector<size_t>> gives_owed_;  // of each contribution, for each server's group
  std::vector<GroupState> states_;
  LinkSimulation links_;
};

}  // namespace

Exchange ExchangeWithServers(const StepWork& work, const Cluster& cluster, ServerPlace place,
                             const std::vector<std::vector<double>>& ready_ms) {
  return ServerExchange(work, cluster, place).Run(ready_ms);
}

}  // namespace pando
