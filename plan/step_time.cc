#include "plan/step_time.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "common/check.h"
#include "plan/goodput.h"
#include "plan/micro_batch_tree.h"
#include "plan/server_exchange.h"

namespace pando {
namespace {

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

// Returns the step's work as the slowest worker computes it, which all others wait for.
StepWork SlowestWork(const StepWork& work, const Cluster& cluster) {
  StepWork slowest = work;
  const double factor = 1 + cluster.straggle * ExpectedMaximum(cluster.workers);
  for (StepLayer& layer : slowest.layers) {
    layer.forward_ms *= factor;
    layer.backward_ms *= factor;
  }
  return slowest;
}

// AllreduceLoad is what each member sends, and as much is received: messages one after the other,
// and bytes for each byte of a bucket.
struct AllreduceLoad {
  double rounds = 0;
  double copies = 0;
  double uplink_copies = 0;    // of these, the ones that a round cannot send faster than uplinks
  double uplink_slowness = 0;  // how much longer these take than on a host's link
};

// If all workers are on one host, nothing crosses a link. Patarasu and Yuan: each of m members
// sends (m - 1) / m of the bytes twice, piece by piece. The ring follows the racks, so that one
// member of each uses its uplink, in every round. In halving and doubling all members do, in the
// rounds whose partners are that far away. The near partners exchange most of the bytes.
AllreduceLoad FindLoad(const Cluster& cluster, Rounds rounds) {
  if (cluster.host_count() == 1) return {};
  const uint32_t size = cluster.host_count() * cluster.copies_per_host();
  const uint32_t rack = cluster.copies_per_rack();
  const uint32_t power = std::bit_floor(size);
  const double members = rounds == Rounds::kRing ? size : power;
  const double per_member = cluster.oversubscription / cluster.hosts_per_rack();
  AllreduceLoad load{.rounds = 2 * (members - 1), .copies = 2 * (members - 1) / members};
  if (rounds == Rounds::kRing) {
    load.uplink_copies = rack < size ? load.copies : 0;
    load.uplink_slowness = per_member;
    return load;
  }
  load.uplink_copies = std::max(0.0, 2.0 / std::bit_floor(rack) - 2.0 / power);
  load.uplink_slowness = rack * per_member;
  const double more = power == size ? 0 : 2;
  load.rounds = 2.0 * (std::bit_width(power) - 1) + more;
  load.copies += more;
  return load;
}

// A member copies what it sends and what it receives, and sums half of the latter. The link, the
// thread that copies and the one that sums carry bytes at the same time.
double AllreduceMs(const Cluster& cluster, const AllreduceLoad& load, uint64_t bytes) {
  const Costs& costs = cluster.costs;
  const double byte_ms =
      std::max({1 / cluster.bytes_per_ms, 2 * costs.copy_ms_per_byte, costs.sum_ms_per_byte / 2});
  const double uplink_ms = std::max(byte_ms, load.uplink_slowness / cluster.bytes_per_ms);
  return static_cast<double>(bytes) *
             ((load.copies - load.uplink_copies) * byte_ms + load.uplink_copies * uplink_ms) +
         load.rounds * (cluster.latency_ms + 2 * (costs.message_ms + costs.item_ms));
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
  const StepWork slowest = SlowestWork(work, cluster);
  const Timeline timeline(slowest, cluster.share.micro_batches);
  std::vector<std::vector<double>> ready_ms;
  for (uint32_t micro_batch : cluster.share.contributions) {
    ready_ms.emplace_back();
    for (const StepShard& shard : work.shards)
      ready_ms.back().push_back(timeline.ReadyMs(shard.layer, micro_batch));
  }
  const auto [arrivals_ms, link_ms] =
      ExchangeWithServers(work, cluster.ForServers(), place, ready_ms);
  std::vector<double> earliest_ms(work.layers.size(), 0.0);
  std::vector<size_t> last_shards(work.layers.size());  // of each layer
  for (size_t i = 0; i < work.shards.size(); ++i) {
    const size_t layer = work.shards[i].layer;
    if (arrivals_ms[i] <= earliest_ms[layer]) continue;
    earliest_ms[layer] = arrivals_ms[i];
    last_shards[layer] = i;
  }
  const Timeline::Forward forward = timeline.ForwardFrom(earliest_ms);
  StepTime time{.step_ms = forward.end_ms,
                .alone_ms = ComputeMs(work) + work.optimizer_ms,
                .link_ms = link_ms};
  if (forward.waited_last) time.critical_shard = last_shards[*forward.waited_last];
  return time;
}

StepTime AllreduceStep(const StepWork& work, const Cluster& cluster, Rounds rounds,
                       const BucketLimits& limits) {
  const StepWork slowest = SlowestWork(work, cluster);
  const Timeline timeline(slowest, cluster.share.micro_batches);
  const uint32_t last_micro_batch = cluster.share.micro_batches - 1;
  const AllreduceLoad load = FindLoad(cluster, rounds);
  double free_ms = 0;
  for (const Bucket& bucket : MakeBuckets(work, limits)) {
    const double start_ms =
        std::max(free_ms, timeline.ReadyMs(bucket.last_layer, last_micro_batch));
    free_ms = start_ms + AllreduceMs(cluster, load, bucket.bytes);
  }
  const double updated_ms = std::max(free_ms, timeline.ComputedMs()) + work.optimizer_ms;
  const std::vector<double> earliest_ms(work.layers.size(), updated_ms);
  const double copies = std::max(load.copies, load.uplink_copies * load.uplink_slowness);
  return {.step_ms = timeline.ForwardFrom(earliest_ms).end_ms,
          .alone_ms = ComputeMs(work) + work.optimizer_ms,
          .link_ms = copies * static_cast<double>(GradientBytes(work)) / cluster.bytes_per_ms};
}

ServerChoice ChooseServers(const StepWork& work, const Cluster& cluster, const BucketLimits& limits,
                           uint32_t tried_max, double least_gain) {
  PANDO_CHECK(tried_max >= 1);
  ServerChoice choice{.tried_max = tried_max};
  const double allreduce_ms =
      std::min(AllreduceStep(work, cluster, Rounds::kRing, limits).step_ms,
               AllreduceStep(work, cluster, Rounds::kHalvingDoubling, limits).step_ms);
  std::vector<uint32_t> counts;
  for (uint32_t servers = 0; servers < tried_max; counts.push_back(servers))
    servers = std::min(tried_max, servers + (servers < 16 ? 1 : servers / 4));
  const auto step_ms = [&](uint32_t servers) {
    Cluster tried = cluster;
    tried.servers = servers;
    return ParameterServerStep(work, tried, ServerPlace::kOwnHosts).step_ms;
  };
  const auto first_faster = [&](double max_ms) {
    return *std::ranges::lower_bound(counts, max_ms, std::greater<>(), step_ms);
  };
  const double best_ms = step_ms(tried_max);
  if (best_ms < allreduce_ms) choice.beats_allreduce = first_faster(allreduce_ms);
  choice.enough =
      std::max(first_faster(best_ms / (1 - least_gain)), choice.beats_allreduce.value_or(0));
  choice.enough_ms = step_ms(choice.enough);
  return choice;
}

}  // namespace pando
