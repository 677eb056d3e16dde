#include "plan/server_exchange.h"

#include <algorithm>
#include <utility>

#include "plan/even_placement.h"
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

// worker/push_groups.h has these bounds of a group, for a server with one lane.
constexpr uint64_t kGroupBytesMax = 128 << 10;
constexpr uint64_t kGroupBytesMin = 64 << 10;
constexpr uint64_t kGroupsWanted = 32;

// MessageGroup is the shards of one server that one message carries, the last one first.
struct MessageGroup {
  size_t server = 0;
  uint64_t bytes = 0;
  std::vector<size_t> shards;
};

// Returns the bytes at which a server's groups are closed.
uint64_t GroupBytes(uint64_t server_bytes) {
  if (server_bytes <= kGroupBytesMax) return kGroupBytesMax;
  return std::clamp(server_bytes / kGroupsWanted, kGroupBytesMin, kGroupBytesMax);
}

// Cuts each server's shards from the back. `is_alone`: each shard is a group.
std::vector<MessageGroup> MakeGroups(const StepWork& work, size_t server_count, bool is_alone) {
  std::vector<uint64_t> bytes;
  for (const StepShard& shard : work.shards) bytes.push_back(shard.bytes);
  const std::vector<size_t> servers = PlaceEvenly(bytes, server_count);
  std::vector<uint64_t> server_bytes(server_count);
  for (size_t s = 0; s < bytes.size(); ++s) server_bytes[servers[s]] += bytes[s];
  std::vector<MessageGroup> groups;
  std::vector<size_t> open(server_count, SIZE_MAX);
  for (size_t s = bytes.size(); s-- > 0;) {
    size_t& group = open[servers[s]];
    const uint64_t close_at = is_alone ? 0 : GroupBytes(server_bytes[servers[s]]);
    if (group == SIZE_MAX || groups[group].bytes >= close_at) {
      group = groups.size();
      groups.push_back({.server = servers[s], .bytes = 0, .shards = {}});
    }
    groups[group].bytes += bytes[s];
    groups[group].shards.push_back(s);
  }
  return groups;
}

// All hosts are alike. So the links of one host and the messages of one worker stand for all. Each
// server has links and a queue of the messages of all workers. On the workers' hosts a host's links
// also carry the mean of what the servers send and receive.
class ServerExchange {
 public:
  // `work` and `cluster` outlive it.
  ServerExchange(const StepWork& work, const Cluster& cluster, ServerPlace place)
      : work_(work),
        cluster_(cluster),
        is_shared_(place == ServerPlace::kWorkersHosts),
        server_count_(is_shared_ ? cluster.host_count() : cluster.servers),
        replicas_(std::min(cluster.replicas, server_count_)),
        copies_(cluster.sums_on_host ? 1 : cluster.workers_per_host),
        groups_(MakeGroups(work, server_count_, /*is_alone=*/!cluster.costs.has_any())),
        links_(kHostLinks + kServerLinks * size_t{server_count_}) {}

  // Returns when each shard's new version has arrived. Must be called once.
  std::vector<double> Run(const std::vector<std::vector<double>>& ready_ms) {
    states_.assign(groups_.size(), {.pushes_owed = static_cast<uint32_t>(ready_ms.size()),
                                    .replicas_owed = replicas_});
    for (const std::vector<double>& contribution : ready_ms) {
      for (size_t g = 0; g < groups_.size(); ++g) {  // if ready together, the last layer is first
        double ms = 0;
        for (const size_t shard : groups_[g].shards) ms = std::max(ms, contribution[shard]);
        links_.At(ms, [this, g] { Push(g); });
      }
    }
    links_.Run();
    std::vector<double> arrivals_ms(work_.shards.size());
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (const size_t shard : groups_[g].shards) arrivals_ms[shard] = states_[g].arrived_ms;
    }
    return arrivals_ms;
  }

 private:
  using Legs = std::vector<LinkSimulation::Leg>;
  struct GroupState {
    uint32_t pushes_owed = 0;    // of each worker, until the root is complete
    uint32_t replicas_owed = 0;  // until its version is committed
    double arrived_ms = 0;
  };
  // A host's links, and a worker's messages. Each server has as many, and its updates.
  enum Link : size_t { kOut, kIn, kMessages, kHostLinks, kUpdates = kHostLinks, kServerLinks };

  size_t AtServer(size_t server, Link link) const {
    return kHostLinks + kServerLinks * server + link;
  }
  double WireMs(size_t group) const {
    return static_cast<double>(groups_[group].bytes) / cluster_.bytes_per_ms;
  }
  double UpdateMs(size_t group) const {
    return work_.optimizer_ms * static_cast<double>(groups_[group].bytes) /
           static_cast<double>(GradientBytes(work_));
  }
  uint32_t SendRank(size_t group) const {
    const size_t front = groups_[group].shards.back();
    return 1 + (cluster_.order == SendOrder::kAsReady ? 0 : static_cast<uint32_t>(front));
  }
  double ItemsMs(size_t group) const {
    return cluster_.costs.message_ms +
           cluster_.costs.item_ms * static_cast<double>(groups_[group].shards.size());
  }
  // Returns the processor's time for one message of the group's values at one end.
  double MessageMs(size_t group) const {
    return ItemsMs(group) +
           cluster_.costs.copy_ms_per_byte * static_cast<double>(groups_[group].bytes);
  }
  double PushedMs(size_t group) const {
    return MessageMs(group) +
           cluster_.costs.sum_ms_per_byte * static_cast<double>(groups_[group].bytes);
  }

  // Adds the time for `count` messages, unless they cost nothing.
  static void AddMessages(LinkSimulation::Task task, double count, Legs* legs) {
    const double message_ms = std::exchange(task.service_ms, count * task.service_ms);
    task.pieces = std::clamp(static_cast<uint32_t>(count), 1u, kMessagePieces);
    if (message_ms > 0) legs->push_back({task, /*first_ms=*/message_ms, /*last_ms=*/message_ms});
  }

  // Adds the links between hosts and servers. A transfer occupies them at the same time: a server's
  // for all copies, those of a host for its part. A host that has a server uses both.
  struct Wires {
    std::vector<size_t> out;
    std::vector<size_t> in;
    double copies = 1;
    uint32_t rank = 0;
  };
  void AddWires(size_t group, const Wires& wires, Legs* legs) const {
    if (is_shared_ && server_count_ == 1) return;
    double last_ms = WireMs(group);  // that of the last message follows its processor's
    for (const std::vector<size_t>* links : {&wires.out, &wires.in}) {
      for (const size_t link : *links) {
        const double hosts = link < kHostLinks ? cluster_.host_count() : 1;
        legs->push_back(
            {{.link = link,
              .service_ms = wires.copies * WireMs(group) / hosts,
              .rank = wires.rank,
              .pieces = link < kHostLinks || !is_shared_
                            ? 1
                            : std::clamp(static_cast<uint32_t>(wires.copies), 1u, kCopyPieces)},
             /*first_ms=*/0,
             last_ms});
        last_ms = 0;
      }
      if (links == &wires.out) legs->back().first_ms = last_ms = cluster_.latency_ms;
    }
  }
  // Returns a server's link, together with that of its host if workers share it.
  std::vector<size_t> LinksFor(size_t server, Link link) const {
    if (is_shared_) return {link, AtServer(server, link)};
    return {AtServer(server, link)};
  }
  // Returns the copies of a group that cross a server's link: those of other hosts' workers.
  double copies_to_server() const {
    return copies_ * (cluster_.host_count() - (is_shared_ ? 1 : 0));
  }
  double messages_at_server() const { return copies_ * cluster_.host_count(); }

  void Push(size_t group) {
    const size_t server = groups_[group].server;
    const uint32_t rank = SendRank(group);
    Legs legs;
    AddMessages({.link = kMessages, .service_ms = MessageMs(group), .rank = kFirstRank}, 1, &legs);
    AddWires(
        group,
        {.out = {kOut}, .in = LinksFor(server, kIn), .copies = copies_to_server(), .rank = rank},
        &legs);
    if (!legs.empty()) legs.back().first_ms = WireMs(group);  // the first message is complete
    AddMessages(
        {.link = AtServer(server, kMessages), .service_ms = PushedMs(group), .rank = kFirstRank},
        messages_at_server(), &legs);
    if (legs.empty()) return OnPushed(group);
    links_.Pass(std::move(legs), [this, group] { OnPushed(group); });
  }

  void OnPushed(size_t group) {
    if (--states_[group].pushes_owed == 0) Replicate(group);
  }

  // P8. The root goes to the backups first, and all replicas make the version at the same time.
  void Replicate(size_t group) {
    const size_t primary = groups_[group].server;
    const uint32_t rank = SendRank(group);
    for (uint32_t i = 1; i < replicas_; ++i) {
      const size_t backup = (primary + i) % server_count_;
      Legs legs;
      AddMessages(
          {.link = AtServer(primary, kMessages), .service_ms = MessageMs(group), .rank = rank}, 1,
          &legs);
      AddWires(group,
               {.out = LinksFor(primary, kOut), .in = LinksFor(backup, kIn), .rank = kRootRank},
               &legs);
      legs.back().first_ms.reset();
      // The backup also sends the acknowledgement.
      AddMessages({.link = AtServer(backup, kMessages),
                   .service_ms = MessageMs(group) + ItemsMs(group),
                   .rank = kFirstRank},
                  1, &legs);
      links_.Pass(std::move(legs), [this, group, backup] { Make(group, backup); });
    }
    Make(group, primary);
  }

  void Make(size_t group, size_t server) {
    const double update_ms = UpdateMs(group);
    const uint32_t rank = SendRank(group);
    const bool is_backup = server != groups_[group].server;
    const auto on_end = [this, group, is_backup] {
      links_.At(links_.now_ms() + (is_backup ? cluster_.latency_ms : 0),
                [this, group, is_backup] { OnMade(group, is_backup); });
    };
    links_.Use({.link = AtServer(server, kUpdates), .service_ms = update_ms, .rank = rank}, nullptr,
               on_end);
  }

  // A backup's acknowledgement is one more message for the primary.
  void OnMade(size_t group, bool is_backup) {
    Legs legs;
    AddMessages({.link = AtServer(groups_[group].server, kMessages),
                 .service_ms = is_backup ? ItemsMs(group) : 0,
                 .rank = kFirstRank},
                1, &legs);
    const auto made = [this, group] {
      if (--states_[group].replicas_owed == 0) Reply(group);
    };
    if (legs.empty()) return made();
    links_.Pass(std::move(legs), made);
  }

  void Reply(size_t group) {
    const size_t server = groups_[group].server;
    const uint32_t rank = SendRank(group);
    Legs legs;
    AddMessages({.link = AtServer(server, kMessages), .service_ms = MessageMs(group), .rank = rank},
                messages_at_server(), &legs);
    AddWires(
        group,
        {.out = LinksFor(server, kOut), .in = {kIn}, .copies = copies_to_server(), .rank = rank},
        &legs);
    if (!legs.empty()) legs.back().first_ms.reset();  // the last worker has its copy at the end
    AddMessages({.link = kMessages, .service_ms = MessageMs(group), .rank = kFirstRank}, 1, &legs);
    const auto arrive = [this, group] { states_[group].arrived_ms = links_.now_ms(); };
    if (legs.empty()) return arrive();
    links_.Pass(std::move(legs), arrive);
  }

  const StepWork& work_;
  const Cluster& cluster_;
  bool is_shared_;  // the servers are on the workers' hosts
  uint32_t server_count_;
  uint32_t replicas_;
  double copies_;  // of each shard that a host's workers push and pull
  std::vector<MessageGroup> groups_;
  std::vector<GroupState> states_;
  LinkSimulation links_;
};

}  // namespace

double BusiestLinkMs(const StepWork& work, const Cluster& cluster, ServerPlace place) {
  const double model_ms = static_cast<double>(GradientBytes(work)) / cluster.bytes_per_ms;
  const double hosts = cluster.host_count();
  const double copies = cluster.sums_on_host ? 1 : cluster.workers_per_host;
  const double pushes = static_cast<double>(cluster.share.contributions.size());
  const double servers = place == ServerPlace::kOwnHosts ? cluster.servers : hosts;
  const double roots = std::min<double>(cluster.replicas, servers) - 1;
  // The busiest direction is in at a server (pushes, roots), out at a server (replies, roots), or
  // out at a host.
  if (place == ServerPlace::kOwnHosts) {
    const double at_servers = (pushes * hosts * copies + roots) / servers;
    return std::max(at_servers, pushes * copies) * model_ms;
  }
  return ((pushes + 1) * copies * (hosts - 1) + roots) / hosts * model_ms;
}

std::vector<double> ExchangeWithServers(const StepWork& work, const Cluster& cluster,
                                        ServerPlace place,
                                        const std::vector<std::vector<double>>& ready_ms) {
  return ServerExchange(work, cluster, place).Run(ready_ms);
}

}  // namespace pando
