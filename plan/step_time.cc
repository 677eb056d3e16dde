#include "plan/step_time.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "plan/even_placement.h"
#include "plan/link_simulation.h"
#include "plan/micro_batch_tree.h"

namespace pando {
namespace {

// ---- the pushes, roots and replies of one step over the links of workers and servers ------------

struct ExchangeTimes {
  std::vector<double> arrivals_ms;  // when the last worker has each shard's new version
  double busiest_link_ms = 0;       // the load of the busiest direction of a link in a step
};

// A root shares a link with the pushes and replies of a whole model, but has its own connection. So
// it does not wait behind all of them.
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
    std::vector<uint64_t> bytes;
    for (const StepShard& shard : work.shards) bytes.push_back(shard.bytes);
    primaries_ = PlaceEvenly(bytes, server_count_);
  }

  // Returns when each shard's new version has arrived. Must be called once.
  std::vector<double> Run(const std::vector<std::vector<double>>& ready_ms) {
    for (ShardState& shard : shards_) {
      shard.pushes_owed = static_cast<uint32_t>(ready_ms.size() * simulated_hosts_);
      shard.replicas_owed = replicas_;
    }
    for (const std::vector<double>& contribution : ready_ms) {
      for (size_t s = shards_.size(); s-- > 0;)  // if ready together, the last layer is first
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
    // The busiest direction is in at a server (pushes, roots), out at a server (replies, roots), or
    // out at a host.
    if (!is_shared()) {
      const double at_servers = (pushes * hosts * copies_ + roots) / server_count_;
      return std::max(at_servers, pushes * copies_) * model_ms;
    }
    return ((pushes + 1) * copies_ * (hosts - 1) + roots) / hosts * model_ms;
  }

 private:
  struct ShardState {
    uint32_t pushes_owed = 0;    // until its root is complete
    uint32_t replicas_owed = 0;  // until its version is committed
    double arrived_ms = 0;
  };
  struct HostLinks {
    size_t out = 0;
    size_t in = 0;
  };

  bool is_shared() const { return place_ == ServerPlace::kWorkersHosts; }
  // The links are out and in of the simulated hosts, then of the servers that have separate hosts,
  // then each server's update.
  HostLinks LinksOfHost(size_t host) const { return {2 * host, 2 * host + 1}; }
  HostLinks LinksOfServer(size_t server) const {
    return LinksOfHost(is_shared() ? server : simulated_hosts_ + server);
  }
  size_t ServerUpdate(size_t server) const {
    return 2 * (simulated_hosts_ + server_count_) + server;
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

  // P8. The root goes to the backups first, and all replicas make the version at the same time.
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
  double copies_;           // copies of each shard that a host's workers push and pull
  size_t simulated_hosts_;  // with separate servers all hosts behave alike, so one is simulated
  double alike_;            // hosts that each simulated host stands for
  std::vector<size_t> primaries_;
  std::vector<ShardState> shards_;
  LinkSimulation links_;
};

// `ready_ms` has, for each contribution, when each of its shards may leave.
ExchangeTimes SimulateServers(const StepWork& work, const Cluster& cluster, ServerPlace place,
                              const std::vector<std::vector<double>>& ready_ms) {
  ServerExchange exchange(work, cluster, place);
  return {exchange.Run(ready_ms), exchange.BusiestLinkMs()};
}

// ---- a step ------------------------------------------------------------------------------------

double ForwardMs(const StepWork& work) {
  double ms = 0;
  for (const StepLayer& layer : work.layers) ms += layer.forward_ms;
  return ms;
}

// Timeline is the computing part of a step. Time 0 is the end of the first micro-batch's forward.
// Only that forward waits, so the step ends where the next step's first forward ends.
class Timeline {
 public:
  Timeline(const StepWork& work, uint32_t micro_batches)
      : work_(work), micro_batches_(micro_batches), backward_ends_(work.layers.size()) {
    double ms = 0;
    for (size_t i = work.layers.size(); i-- > 0;) {
      ms += work.layers[i].backward_ms / micro_batches;
      backward_ends_[i] = ms;
    }
  }

  // Returns when a layer's gradients of this micro-batch are final.
  double ReadyMs(size_t layer, uint32_t micro_batch) const {
    return micro_batch * ComputeMs(work_) / micro_batches_ + backward_ends_[layer];
  }
  double ComputedMs() const { return ReadyMs(0, micro_batches_ - 1); }
  struct Forward {
    double end_ms = 0;
    std::optional<size_t> waited_last;  // the layer before which it waited last
  };
  // Returns a forward whose layers begin at these times or later.
  Forward ForwardFrom(const std::vector<double>& earliest_ms) const {
    Forward forward{.end_ms = ComputedMs()};
    for (size_t i = 0; i < work_.layers.size(); ++i) {
      if (earliest_ms[i] > forward.end_ms) forward = {earliest_ms[i], i};
      forward.end_ms += work_.layers[i].forward_ms / micro_batches_;
    }
    return forward;
  }

 private:
  const StepWork& work_;
  uint32_t micro_batches_;
  std::vector<double> backward_ends_;
};

// Returns the ring's number of members. If all workers are on one host, nothing crosses a link.
uint32_t RingSize(const Cluster& cluster) {
  if (cluster.host_count() == 1) return 1;
  return cluster.sums_on_host ? cluster.host_count() : cluster.workers;
}

// Patarasu and Yuan: each member sends and receives (m - 1) / m of the bytes twice, piece by piece.
double RingMs(const Cluster& cluster, uint64_t bytes) {
  const double size = RingSize(cluster);
  return 2 * (size - 1) / size * static_cast<double>(bytes) / cluster.bytes_per_ms;
}

struct Bucket {
  uint64_t bytes = 0;
  size_t last_layer = 0;  // the last layer to finish its gradient
};

std::vector<Bucket> MakeBuckets(const StepWork& work, const BucketLimits& limits) {
  std::vector<Bucket> buckets;
  Bucket open;
  for (size_t i = work.layers.size(); i-- > 0;) {
    if (work.layers[i].bytes == 0) continue;
    open = {.bytes = open.bytes + work.layers[i].bytes, .last_layer = i};
    if (open.bytes < (buckets.empty() ? limits.first_bytes : limits.bytes)) continue;
    buckets.push_back(std::exchange(open, {}));
  }
  if (open.bytes > 0) buckets.push_back(open);
  return buckets;
}

}  // namespace

double ComputeMs(const StepWork& work) {
  double ms = ForwardMs(work);
  for (const StepLayer& layer : work.layers) ms += layer.backward_ms;
  return ms;
}

uint64_t GradientBytes(const StepWork& work) {
  uint64_t bytes = 0;
  for (const StepShard& shard : work.shards) bytes += shard.bytes;
  return bytes;
}

WorkerShare BusiestShare(uint32_t worker_count, uint32_t micro_batch_count) {
  PANDO_CHECK(worker_count >= 1 && worker_count <= micro_batch_count);
  const MicroBatchTree tree(
      {.micro_batch_count = micro_batch_count, .sample_count = micro_batch_count});
  WorkerShare busiest{.micro_batches = 1, .contributions = {}};
  for (uint64_t w = 0; w < worker_count; ++w) {
    const auto first = static_cast<uint32_t>(w * micro_batch_count / worker_count);
    const auto last = static_cast<uint32_t>((w + 1) * micro_batch_count / worker_count);
    std::vector<MicroBatch> assigned;
    for (uint32_t m = first; m < last; ++m) assigned.emplace_back(m);
    std::vector<uint32_t> contributions;
    for (TreeNode node : tree.Cover(assigned))
      contributions.push_back(std::min(tree.Range(node).last, last) - first - 1);
    busiest.micro_batches = std::max(busiest.micro_batches, last - first);
    if (contributions.size() >= busiest.contributions.size()) busiest.contributions = contributions;
  }
  return busiest;
}

StepTime ParameterServerStep(const StepWork& work, const Cluster& cluster, ServerPlace place) {
  const Timeline timeline(work, cluster.share.micro_batches);
  std::vector<std::vector<double>> ready_ms;
  for (uint32_t micro_batch : cluster.share.contributions) {
    ready_ms.emplace_back();
    for (const StepShard& shard : work.shards)
      ready_ms.back().push_back(timeline.ReadyMs(shard.layer, micro_batch));
  }
  const ExchangeTimes exchange = SimulateServers(work, cluster, place, ready_ms);
  std::vector<double> earliest_ms(work.layers.size(), 0.0);
  std::vector<size_t> last_shards(work.layers.size());  // of each layer
  for (size_t i = 0; i < work.shards.size(); ++i) {
    const size_t layer = work.shards[i].layer;
    if (exchange.arrivals_ms[i] <= earliest_ms[layer]) continue;
    earliest_ms[layer] = exchange.arrivals_ms[i];
    last_shards[layer] = i;
  }
  const Timeline::Forward forward = timeline.ForwardFrom(earliest_ms);
  StepTime time{.step_ms = forward.end_ms,
                .alone_ms = ComputeMs(work) + work.optimizer_ms,
                .link_ms = exchange.busiest_link_ms};
  if (forward.waited_last) time.critical_shard = last_shards[*forward.waited_last];
  return time;
}

StepTime RingStep(const StepWork& work, const Cluster& cluster, const BucketLimits& limits) {
  const Timeline timeline(work, cluster.share.micro_batches);
  const uint32_t last_micro_batch = cluster.share.micro_batches - 1;
  const double rounds = 2.0 * (RingSize(cluster) - 1);
  double free_ms = 0;
  for (const Bucket& bucket : MakeBuckets(work, limits)) {
    const double start_ms =
        std::max(free_ms, timeline.ReadyMs(bucket.last_layer, last_micro_batch));
    free_ms = start_ms + RingMs(cluster, bucket.bytes) + rounds * cluster.latency_ms;
  }
  const double updated_ms = std::max(free_ms, timeline.ComputedMs()) + work.optimizer_ms;
  const std::vector<double> earliest_ms(work.layers.size(), updated_ms);
  return {.step_ms = timeline.ForwardFrom(earliest_ms).end_ms,
          .alone_ms = ComputeMs(work) + work.optimizer_ms,
          .link_ms = RingMs(cluster, GradientBytes(work))};
}

ServerChoice ChooseServers(const StepWork& work, const Cluster& cluster, const BucketLimits& limits,
                           uint32_t tried_max, double least_gain) {
  PANDO_CHECK(tried_max >= 1);
  ServerChoice choice{.tried_max = tried_max};
  const double ring_ms = RingStep(work, cluster, limits).step_ms;
  std::vector<double> steps_ms;
  Cluster tried = cluster;
  for (tried.servers = 1; tried.servers <= tried_max; ++tried.servers) {
    steps_ms.push_back(ParameterServerStep(work, tried, ServerPlace::kOwnHosts).step_ms);
    if (steps_ms.back() < ring_ms && !choice.beats_ring) choice.beats_ring = tried.servers;
  }
  const double best_ms = *std::ranges::min_element(steps_ms);
  // The first count from which the best one saves at most least_gain; fewer servers cost more.
  const auto enough =
      std::ranges::find_if(steps_ms, [&](double ms) { return best_ms >= ms * (1 - least_gain); });
  choice.enough = static_cast<uint32_t>(enough - steps_ms.begin()) + 1;
  choice.enough_ms = *enough;
  return choice;
}

}  // namespace pando
