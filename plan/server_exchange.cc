#include "plan/server_exchange.h"

#include <algorithm>

#include "plan/link_simulation.h"

namespace pando {
namespace {

// A root shares a link with the pushes and replies of a whole model, each on a separate connection.
// It does not wait behind all of them.
constexpr uint32_t kRootRank = 0;

class ServerExchange {
 public:
  // `work` and `cluster` outlive it.
  ServerExchange(const StepWork& work, const Cluster& cluster, ServerPlace place)
      : work_(work),
        cluster_(cluster),
        place_(place),
        server_count_(is_shared() ? cluster.host_count() : cluster.servers),
        replicas_(std::min(cluster.replicas, server_count_)),
        copies_(cluster.sums_on_host ? 1 : cluster.workers_per_host),
        simulated_hosts_(is_shared() ? cluster.host_count() : 1),
        alike_(is_shared() ? 1 : cluster.host_count()),
        shards_(work.shards.size()),
        links_(2 * (simulated_hosts_ + server_count_) + server_count_) {
    PlaceShards();
  }

  // Call it once.
  std::vector<double> Run(const std::vector<std::vector<double>>& ready_ms) {
    for (ShardState& shard : shards_) {
      shard.pushes_owed = static_cast<uint32_t>(ready_ms.size() * simulated_hosts_);
      shard.replicas_owed = replicas_;
    }
    for (const std::vector<double>& contribution : ready_ms) {
      for (size_t s = shards_.size(); s-- > 0;)  // of those ready at once the last layer goes first
        links_.At(contribution[s], [this, s] { Push(s); });
    }
    links_.Run();
    std::vector<double> arrivals_ms;
    for (const ShardState& shard : shards_) arrivals_ms.push_back(shard.arrived_ms);
    return arrivals_ms;
  }

  double BusiestLinkMs() const {
    const double model_ms = static_cast<double>(GradientBytes(work_)) / cluster_.bytes_per_ms;
    const double hosts = cluster_.host_count();
    const double pushes = static_cast<double>(cluster_.share.contributions.size());
    const double roots = replicas_ - 1;
    // In at a server (pushes and others' roots), out at a server (replies and roots), out at a
    // host.
    if (!is_shared()) {
      const double at_servers = (pushes * hosts * copies_ + roots) / server_count_;
      return std::max(at_servers, pushes * copies_) * model_ms;
    }
    return ((pushes + 1) * copies_ * (hosts - 1) + roots) / hosts * model_ms;
  }

 private:
  struct ShardState {
    uint32_t pushes_owed = 0;    // before its root is complete
    uint32_t replicas_owed = 0;  // before its version is committed
    double arrived_ms = 0;
  };
  struct HostLinks {
    size_t out = 0;
    size_t in = 0;
  };

  bool is_shared() const { return place_ == ServerPlace::kWorkersHosts; }
  // Links: out and in of the simulated hosts, then of the servers that have separate hosts, then
  // each server's update.
  HostLinks LinksOfHost(size_t host) const { return {2 * host, 2 * host + 1}; }
  HostLinks LinksOfServer(size_t server) const {
    return LinksOfHost(is_shared() ? server : simulated_hosts_ + server);
  }
  size_t ServerUpdate(size_t server) const {
    return 2 * (simulated_hosts_ + server_count_) + server;
  }

  // As the scheduler does without further constraints: to the server with the fewest bytes.
  void PlaceShards() {
    std::vector<uint64_t> bytes(server_count_);
    for (const StepShard& shard : work_.shards) {
      const auto least = std::ranges::min_element(bytes);
      *least += shard.bytes;
      primaries_.push_back(static_cast<size_t>(least - bytes.begin()));
    }
  }

  double WireMs(size_t shard) const {
    return static_cast<double>(work_.shards[shard].bytes) / cluster_.bytes_per_ms;
  }

  double UpdateMs(size_t shard) const {
    return work_.optimizer_ms * static_cast<double>(work_.shards[shard].bytes) /
           static_cast<double>(GradientBytes(work_));
  }

  uint32_t SendRank(size_t shard) const {
    return 1 + (cluster_.order == SendOrder::kAsReady ? 0 : static_cast<uint32_t>(shard));
  }

  void Push(size_t shard) {
    const HostLinks to = LinksOfServer(primaries_[shard]);
    const double wire_ms = copies_ * WireMs(shard);
    const uint32_t rank = SendRank(shard);
    for (size_t host = 0; host < simulated_hosts_; ++host) {
      if (is_shared() && host == primaries_[shard]) {
        OnPushed(shard);
        continue;
      }
      links_.Send({.out = {.link = LinksOfHost(host).out, .service_ms = wire_ms, .rank = rank},
                   .in = {.link = to.in, .service_ms = alike_ * wire_ms, .rank = rank},
                   .latency_ms = cluster_.latency_ms},
                  [this, shard] { OnPushed(shard); });
    }
  }

  void OnPushed(size_t shard) {
    if (--shards_[shard].pushes_owed == 0) Replicate(shard);
  }

  // P8: the root goes to the backups first, and all replicas make the version at the same time.
  void Replicate(size_t shard) {
    const size_t primary = primaries_[shard];
    const uint32_t rank = SendRank(shard);
    auto make = [this, shard, rank](size_t server, double answer_ms) {
      const double update_ms = UpdateMs(shard);
      links_.Use({.link = ServerUpdate(server), .service_ms = update_ms, .rank = rank},
                 [this, shard, update_ms, answer_ms] {
                   links_.At(links_.now_ms() + update_ms + answer_ms,
                             [this, shard] { OnReplicaMade(shard); });
                 });
    };
    for (uint32_t i = 1; i < replicas_; ++i) {
      const size_t backup = (primary + i) % server_count_;
      const double wire_ms = WireMs(shard);
      links_.Send(
          {.out = {.link = LinksOfServer(primary).out, .service_ms = wire_ms, .rank = kRootRank},
           .in = {.link = LinksOfServer(backup).in, .service_ms = wire_ms, .rank = kRootRank},
           .latency_ms = cluster_.latency_ms},
          [this, make, backup] { make(backup, cluster_.latency_ms); });
    }
    make(primary, 0.0);
  }

  void OnReplicaMade(size_t shard) {
    if (--shards_[shard].replicas_owed == 0) Reply(shard);
  }

  void Reply(size_t shard) {
    const HostLinks from = LinksOfServer(primaries_[shard]);
    const double wire_ms = copies_ * WireMs(shard);
    const uint32_t rank = SendRank(shard);
    double& arrived_ms = shards_[shard].arrived_ms;
    arrived_ms = links_.now_ms();
    for (size_t host = 0; host < simulated_hosts_; ++host) {
      if (is_shared() && host == primaries_[shard]) continue;
      links_.Send({.out = {.link = from.out, .service_ms = alike_ * wire_ms, .rank = rank},
                   .in = {.link = LinksOfHost(host).in, .service_ms = wire_ms, .rank = rank},
                   .latency_ms = cluster_.latency_ms},
                  [this, &arrived_ms] { arrived_ms = links_.now_ms(); });
    }
  }

  const StepWork& work_;
  const Cluster& cluster_;
  ServerPlace place_;
  uint32_t server_count_;
  uint32_t replicas_;
  double copies_;           // of each shard that a host's workers push and pull
  size_t simulated_hosts_;  // with separate servers all hosts behave the same: one is simulated
  double alike_;            // hosts that each simulated host stands for
  std::vector<size_t> primaries_;
  std::vector<ShardState> shards_;
  LinkSimulation links_;
};

}  // namespace

ExchangeTimes SimulateServers(const StepWork& work, const Cluster& cluster, ServerPlace place,
                              const std::vector<std::vector<double>>& ready_ms) {
  ServerExchange exchange(work, cluster, place);
  return {exchange.Run(ready_ms), exchange.BusiestLinkMs()};
}

}  // namespace pando
