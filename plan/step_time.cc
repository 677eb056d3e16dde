#include "plan/step_time.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "plan/server_exchange.h"
#include "plan/tree.h"

namespace pando {
namespace {

double ForwardMs(const StepWork& work) {
  double ms = 0;
  for (const StepLayer& layer : work.layers) ms += layer.forward_ms;
  return ms;
}

// The computing part of a step. Time 0 is the end of the first micro-batch's forward. Only that
// forward waits: the step ends where the next step's first forward ends.
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

  // When a layer's gradients of this micro-batch are final.
  double ReadyMs(size_t layer, uint32_t micro_batch) const {
    return micro_batch * ComputeMs(work_) / micro_batches_ + backward_ends_[layer];
  }
  double ComputedMs() const { return ReadyMs(0, micro_batches_ - 1); }
  // The end of a forward whose layers begin at these times or later.
  double ForwardEndMs(const std::vector<double>& earliest_ms) const {
    double ms = ComputedMs();
    for (size_t i = 0; i < work_.layers.size(); ++i)
      ms = std::max(ms, earliest_ms[i]) + work_.layers[i].forward_ms / micro_batches_;
    return ms;
  }

 private:
  const StepWork& work_;
  uint32_t micro_batches_;
  std::vector<double> backward_ends_;
};

// The members of the ring. With all workers on one host nothing crosses a link.
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
  for (size_t i = 0; i < work.shards.size(); ++i) {
    double& layer_ms = earliest_ms[work.shards[i].layer];
    layer_ms = std::max(layer_ms, exchange.arrivals_ms[i]);
  }
  return {.step_ms = timeline.ForwardEndMs(earliest_ms),
          .alone_ms = ComputeMs(work) + work.optimizer_ms,
          .link_ms = exchange.busiest_link_ms};
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
  return {.step_ms = timeline.ForwardEndMs(earliest_ms),
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
  // The first count from which the best one saves no more than least_gain; fewer servers cost more.
  const auto enough =
      std::ranges::find_if(steps_ms, [&](double ms) { return best_ms >= ms * (1 - least_gain); });
  choice.enough = static_cast<uint32_t>(enough - steps_ms.begin()) + 1;
  choice.enough_ms = *enough;
  return choice;
}

}  // namespace pando
