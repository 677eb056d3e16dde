// ServerExchange: the pushes, roots and replies of one step over the links of workers and servers,
// shard by shard. Called by step_time.
// Threads: none. Owns: the simulation.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/link_simulation.h"
#include "plan/step_time.h"

namespace pando {

class ServerExchange {
 public:
  // `work` and `cluster` outlive it.
  ServerExchange(const StepWork& work, const Cluster& cluster, ServerPlace place);

  // ready_ms: for each contribution, when each of its shards may leave. Returns when the last
  // worker has each shard's new version. Call it once.
  std::vector<double> Run(const std::vector<std::vector<double>>& ready_ms);

  // The load of the busiest direction of a link in a step.
  double BusiestLinkMs() const;

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

  void PlaceShards();
  double WireMs(size_t shard) const;
  double UpdateMs(size_t shard) const;
  uint32_t SendRank(size_t shard) const;
  void Push(size_t shard);
  void OnPushed(size_t shard);
  void Replicate(size_t shard);
  void OnReplicaMade(size_t shard);
  void Reply(size_t shard);

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

}  // namespace pando
