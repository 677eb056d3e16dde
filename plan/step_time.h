// These functions predict the time of a step whose gradients cross a network: with parameter
// servers, on separate hosts or on the workers' hosts, and with allreduce. docs/performance.md
// derives it. `pando plan` and comparisons with measurements call them. They are pure functions of
// sizes and times. All workers and hosts are alike.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

namespace pando {

struct StepLayer {
  double forward_ms = 0;  // of all that one worker computes in a step
  double backward_ms = 0;
  uint64_t bytes = 0;  // of its parameters, and so of its gradients
};

struct StepShard {
  uint64_t bytes = 0;
  uint32_t layer = 0;  // its first layer: it is final after that backward, needed by that forward
};

// StepWork is a step's work if one worker does it alone.
struct StepWork {
  std::vector<StepLayer> layers;  // in the order of forward
  std::vector<StepShard> shards;  // in the same order
  double optimizer_ms = 0;        // the update of all parameters on one machine
};
double ComputeMs(const StepWork& work);  // without the update
uint64_t GradientBytes(const StepWork& work);

// WorkerShare is a worker's share of a step's N micro-batches (P3), if all workers are equally
// fast. It is that of the worker that sends most.
struct WorkerShare {
  uint32_t micro_batches = 1;
  // For each contribution, the micro-batch that completes it. A subtree makes one contribution.
  std::vector<uint32_t> contributions = {0};
};
// REQUIRES: 1 <= worker_count <= micro_batch_count.
WorkerShare BusiestShare(uint32_t worker_count, uint32_t micro_batch_count);

// The order in which a link sends waiting shards.
enum class SendOrder : uint8_t {
  kAsReady,         // in backward's order: the last layer first
  kAsForwardWants,  // the first layer first
};

// Costs are the processor times of a process for the messages that it sends and receives. It
// handles one message at a time.
struct Costs {
  double message_ms = 0;        // at each end
  double item_ms = 0;           // of a message, which has one for each of its shards; at each end
  double copy_ms_per_byte = 0;  // at each end
  double sum_ms_per_byte = 0;   // of received gradients
  bool has_any() const {
    return message_ms > 0 || item_ms > 0 || copy_ms_per_byte > 0 || sum_ms_per_byte > 0;
  }
};

struct Cluster {
  uint32_t workers = 1;
  uint32_t workers_per_host = 1;  // divides workers
  uint32_t servers = 1;           // if they have separate hosts
  uint32_t replicas = 1;          // of each shard
  double bytes_per_ms = 1;        // of a host's link in each direction; may be infinite
  double latency_ms = 0;          // one way
  // Whether the workers of a host sum their gradients first, so that one copy of gradients and
  // parameters crosses the host's link. Otherwise one copy per worker crosses it.
  bool sums_on_host = false;
  uint32_t rack_size = 0;       // hosts of workers in each rack; 0: one switch connects all hosts
  double oversubscription = 1;  // the rate of a rack's hosts, as a multiple of its uplink's
  bool sums_on_rack = false;    // the workers of a rack sum what goes to other racks
  // The sums of each shard that a rack's relay pushes, for each push of a worker: more than one if
  // the rack's micro-batches are no subtree.
  double rack_pushes = 1;
  SendOrder order = SendOrder::kAsReady;
  WorkerShare share;
  Costs costs;
  double straggle = 0;  // standard deviation of a worker's computing time, as a share of its mean

  uint32_t host_count() const { return workers / workers_per_host; }
  // Returns how many times a host's workers push and pull each shard.
  uint32_t copies_per_host() const { return sums_on_host ? 1 : workers_per_host; }
  uint32_t hosts_per_rack() const {
    return rack_size > 0 ? std::min(rack_size, host_count()) : host_count();
  }
  uint32_t rack_count() const { return (host_count() - 1) / hosts_per_rack() + 1; }
  uint32_t copies_per_rack() const { return hosts_per_rack() * copies_per_host(); }
  // Returns whether one worker of a rack relays each shard of a server in another rack (P6a).
  bool has_relays() const {
    return sums_on_rack && rack_count() > 1 && rack_size * workers_per_host > 1;
  }
  // Returns the cluster as servers use it: racks with sums take the place of hosts (P6a).
  Cluster ForServers() const {
    Cluster cluster = *this;
    cluster.sums_on_host = sums_on_host && !has_relays();
    return cluster;
  }
  // Returns how many pushes of each shard a server gets: from its rack, and from other racks.
  uint32_t copies_per_server() const {
    const double relayed = std::ceil((rack_count() - 1) * rack_pushes);
    return has_relays() ? copies_per_rack() + static_cast<uint32_t>(relayed)
                        : host_count() * copies_per_host();
  }
};

struct StepTime {
  double step_ms = 0;
  double alone_ms = 0;  // one worker without network computes and updates
  double link_ms = 0;   // load of a link's busiest direction, at full speed
  // With servers: the shard whose parameters the next forward waits for last, if it waits.
  std::optional<size_t> critical_shard = {};
  double efficiency() const { return step_ms > 0 ? alone_ms / step_ms : 1; }
  double exposed_ms() const { return step_ms - alone_ms; }  // below 0: servers share the update
};

enum class ServerPlace : uint8_t { kOwnHosts, kWorkersHosts };  // the latter: one on each host

StepTime ParameterServerStep(const StepWork& work, const Cluster& cluster, ServerPlace place);

// BucketLimits are those of PyTorch DDP's buckets, which take gradients in backward order. A bucket
// is closed when it reaches its limit; the first one's limit is smaller.
struct BucketLimits {
  uint64_t first_bytes = uint64_t{1} << 20;
  uint64_t bytes = uint64_t{25} << 20;
};
// The rounds of an allreduce among n members. If n is no power of two, halving and doubling has two
// more, in which the members above the power send all to others and get the result.
enum class Rounds : uint8_t { kRing, kHalvingDoubling };  // 2(n - 1), 2 log2 n
StepTime AllreduceStep(const StepWork& work, const Cluster& cluster, Rounds rounds,
                       const BucketLimits& limits = {});

// ServerChoice is the number of servers on separate hosts that is worth its cost.
struct ServerChoice {
  uint32_t tried_max = 1;
  uint32_t enough = 1;  // with more servers the time falls by at most the least gain
  double enough_ms = 0;
  std::optional<uint32_t> beats_allreduce;  // the fewest that are faster than both kinds of it
};
// Tries 1, 2, ... 16 servers, then each number a quarter above the one before, and tried_max, and
// takes a step to be no longer with more of them. `least_gain` is a share of the step's time.
// Ignores cluster.servers.
ServerChoice ChooseServers(const StepWork& work, const Cluster& cluster, const BucketLimits& limits,
                           uint32_t tried_max, double least_gain);

}  // namespace pando
