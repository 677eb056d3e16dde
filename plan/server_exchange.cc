#include "plan/server_exchange.h"

#include <algorithm>
#include <optional>
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

// MessageGroup is the shards of one server that one message carries, the last one first.
struct MessageGroup {
  size_t server = 0;
  uint64_t bytes = 0;
  std::vector<size_t> shards;
};

// Cuts each server's shards from the back. A server counts as one lane. `is_alone`: each shard is a
// group.
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
  uint32_t SendRank(size_t group) const {
    const size_t front = groups_[group].shards.back();
    return 1 + (cluster_.order == SendOrder::kAsReady ? 0 : static_cast<uint32_t>(front));
  }
  // Returns the processor's time at one end of a message that carries the group's bytes.
  double MessageMs(size_t group, double byte_ms) const {
    return cluster_.costs.message_ms +
           cluster_.costs.item_ms * static_cast<double>(groups_[group].shards.size()) +
           byte_ms * static_cast<double>(groups_[group].bytes);
  }
  double CopiedMs(size_t group) const { return MessageMs(group, cluster_.costs.copy_ms_per_byte); }

  // Adds the time for messages of this time each, unless they cost nothing.
  static void AddMessages(LinkSimulation::Task message, double count, Legs* legs) {
    const double message_ms = std::exchange(message.service_ms, count * message.service_ms);
    message.pieces = std::min(static_cast<uint32_t>(count), kMessagePieces);
    if (message_ms > 0) legs->push_back({message, message_ms, /*last_ms=*/message_ms});
  }

  // Wires are the links between a host and a server, or two servers. A transfer occupies them at
  // the same time: a server's for all copies, those of a host for its part. With the latter,
  // servers on the workers' hosts use both. The next leg begins `first_ms` after the last of them.
  struct Wires {
    std::vector<size_t> out;
    std::vector<size_t> in;
    double copies = 1;
    uint32_t rank = 0;
    std::optional<double> first_ms = {};
  };
  void AddWires(size_t group, const Wires& wires, Legs* legs) const {
    if (is_shared_ && server_count_ == 1) return;
    double last_ms = WireMs(group);  // the last message follows its processor's time
    const auto add = [&](size_t link) {
      const double all_ms = wires.copies * WireMs(group);
      LinkSimulation::Task task{.link = link, .service_ms = all_ms, .rank = wires.rank};
      if (link < kHostLinks) {
        task.service_ms /= cluster_.host_count();
      } else if (is_shared_) {
        task.pieces = std::min(static_cast<uint32_t>(wires.copies), kCopyPieces);
      }
      legs->push_back({task, /*first_ms=*/0, std::exchange(last_ms, 0)});
    };
    std::ranges::for_each(wires.out, add);
    legs->back().first_ms = last_ms = cluster_.latency_ms;
    std::ranges::for_each(wires.in, add);
    legs->back().first_ms = wires.first_ms;
  }
  // Returns a server's link, together with that of its host if workers share it.
  std::vector<size_t> LinksFor(size_t server, Link link) const {
    if (is_shared_) return {link, AtServer(server, link)};
    return {AtServer(server, link)};
  }
  // Returns how many messages with a group a server gets; only other hosts' cross its link.
  double messages() const { return copies_ * cluster_.host_count(); }
  double copies() const { return messages() - (is_shared_ ? copies_ : 0); }

  void Push(size_t group) {
    const size_t server = groups_[group].server;
    const double byte_ms = cluster_.costs.copy_ms_per_byte + cluster_.costs.sum_ms_per_byte;
    Legs legs;
    AddMessages({kMessages, CopiedMs(group), kFirstRank}, 1, &legs);
    // The server can handle the first message when that is complete.
    AddWires(group, {{kOut}, LinksFor(server, kIn), copies(), SendRank(group), WireMs(group)},
             &legs);
    AddMessages({AtServer(server, kMessages), MessageMs(group, byte_ms), kFirstRank}, messages(),
                &legs);
    links_.Pass(std::move(legs), [this, group] {
      if (--states_[group].pushes_owed == 0) Replicate(group);
    });
  }

  // P8. The root goes to the backups first, and all replicas make the version at the same time. A
  // backup's message back is its acknowledgement.
  void Replicate(size_t group) {
    const size_t primary = groups_[group].server;
    for (uint32_t i = 1; i < replicas_; ++i) {
      const size_t backup = (primary + i) % server_count_;
      Legs legs;
      AddMessages({AtServer(primary, kMessages), CopiedMs(group), SendRank(group)}, 1, &legs);
      AddWires(group, {LinksFor(primary, kOut), LinksFor(backup, kIn), 1, kRootRank}, &legs);
      AddMessages({AtServer(backup, kMessages), CopiedMs(group) + MessageMs(group, 0), kFirstRank},
                  1, &legs);
      links_.Pass(std::move(legs), [this, group, primary, backup] {
        Legs answer;
        AddMessages({AtServer(primary, kMessages), MessageMs(group, 0), kFirstRank}, 1, &answer);
        Make(group, backup, cluster_.latency_ms, std::move(answer));
      });
    }
    Make(group, primary, 0, {});
  }

  void Make(size_t group, size_t server, double latency_ms, Legs answer) {
    const double update_ms = work_.optimizer_ms * static_cast<double>(groups_[group].bytes) /
                             static_cast<double>(GradientBytes(work_));
    const auto on_made = [this, group] {
      if (--states_[group].replicas_owed == 0) Reply(group);
    };
    links_.Use({AtServer(server, kUpdates), update_ms, SendRank(group)}, nullptr,
               [this, latency_ms, answer = std::move(answer), on_made] {
                 links_.At(links_.now_ms() + latency_ms,
                           [this, answer, on_made] { links_.Pass(answer, on_made); });
               });
  }

  void Reply(size_t group) {
    const size_t server = groups_[group].server;
    const uint32_t rank = SendRank(group);
    Legs legs;
    AddMessages({AtServer(server, kMessages), CopiedMs(group), rank}, messages(), &legs);
    AddWires(group, {LinksFor(server, kOut), {kIn}, copies(), rank}, &legs);
    AddMessages({kMessages, CopiedMs(group), kFirstRank}, 1, &legs);  // the last worker's
    links_.Pass(std::move(legs), [this, group] { states_[group].arrived_ms = links_.now_ms(); });
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
