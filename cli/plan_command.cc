// pando plan: predicts the time of a step on machines that do not exist yet.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/plan_report.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "common/text.h"

namespace pando {
namespace {

constexpr uint32_t kWorkersMax = 4096;
constexpr uint32_t kServersMax = 1024;
constexpr double kNumberMin = 1e-6;  // for numbers that must not be 0
constexpr double kNumberMax = 1e9;

// bench/RESULTS.md, Recovery: a stopped worker, which only the lease detects. The time to store a
// checkpoint is an assumption.
constexpr Failures kMeasuredFailures{.recovery_s = 1.93, .checkpoint_s = 1, .restart_s = 2.11};

struct PlanOptions {
  ModelChoice model;
  PlanInput input{.cluster = {.servers = 0, .replicas = Job{}.replicas}};  // unparsed flags
  uint32_t servers_max = 0;    // of the job's cut; 0: the default for the servers of the plan
  uint32_t micro_batches = 0;  // 0: one for each worker
  std::string bandwidth;
  double latency_us = -1;  // below 0: 10, or 0 without costs
  bool has_no_costs = false;
  double message_us = 10;
  double item_us = 3;
  double byte_ns = 0.12;
  double sum_ns = 0.1;
  double straggle_percent = 0;
  double mtbf_hours = 0;  // 0: no failures
  Failures failures = kMeasuredFailures;
  double step_ms = 0;  // 0: by images_per_second
  double images_per_second = 0;
  double optimizer_ms = 0;
  double bucket_cap_mb = 25;
  std::string send_order = "ready";
  std::string rack_sum = "auto";
  bool has_memory = false;
  MemoryInput memory;  // the flags about memory
  bool is_json = false;
};

Status CheckOptions(const PlanOptions& options) {
  const Cluster& cluster = options.input.cluster;
  if (options.model.name.empty() == (options.input.parameter_count == 0))
    return InvalidArgument("expected one of --model NAME and --parameters N");
  if ((options.step_ms > 0) == (options.images_per_second > 0)) {
    return InvalidArgument(
        "expected one of --step-ms X and --images-per-second X with --batch N: what a worker needs "
        "alone");
  }
  if (options.images_per_second > 0 && options.input.batch == 0) {
    return InvalidArgument(
        "--images-per-second needs --batch N, the samples of a step of one worker");
  }
  if (cluster.workers % cluster.workers_per_host != 0) {
    return InvalidArgument(fmt::format("--workers {} is not a multiple of --workers-per-host {}",
                                       cluster.workers, cluster.workers_per_host));
  }
  if (options.micro_batches != 0 && options.micro_batches < cluster.workers) {
    return InvalidArgument(fmt::format(
        "--micro-batches {} leaves some of --workers {} nothing to compute; expected {} "
        "or more",
        options.micro_batches, cluster.workers, cluster.workers));
  }
  if (cluster.rack_size == 0 && (options.rack_sum == "always" || cluster.oversubscription != 1)) {
    return InvalidArgument(
        "--rack-sum always and --oversubscription need --rack-size N, the hosts of a rack");
  }
  if (options.mtbf_hours == 0 && options.failures != kMeasuredFailures) {
    return InvalidArgument(
        "--recovery-s, --checkpoint-s and --restart-s need --mtbf-hours X, the mean time between "
        "the failures of one machine");
  }
  return {};
}

double CountComputeMs(const PlanOptions& options) {
  if (options.step_ms > 0) return options.step_ms;
  return static_cast<double>(options.input.batch) / options.images_per_second * 1000;
}

Status FillModel(const PlanOptions& options, PlanInput* input) {
  const double compute_ms = CountComputeMs(options);
  const Cluster& cluster = input->cluster;
  // Computing does not hide the copies of the front shard, so that they decide how small it is.
  const uint32_t best_cut = cluster.has_relays() ? cluster.ForServers().copies_per_server()
                                                 : std::max(cluster.servers, cluster.host_count());
  const uint32_t servers_max = input->servers_max =
      options.servers_max != 0 ? options.servers_max
                               : std::clamp(best_cut, ShardPlan::kFewServers, kServersMax);
  if (input->parameter_count > 0) {
    input->model = "a model";
    input->work = MakeWork(input->parameter_count, compute_ms, servers_max);
    return {};
  }
  PANDO_ASSIGN_OR_RETURN(Job job, MakeJob(options.model, "--model"));
  PANDO_ASSIGN_OR_RETURN(Graph graph, BuildGraph(options.model, job));
  input->model = options.model.name;
  input->parameter_count = graph.layout().parameter_count();
  input->work = MakeWork(graph, compute_ms, servers_max);
  return {};
}

// Returns a worker's share. A host's sums cover its micro-batches, and leave with the last of them.
WorkerShare FindBusiest(const Cluster& cluster, uint32_t micro_batches) {
  WorkerShare share = BusiestShare(cluster.workers, micro_batches);
  if (!cluster.ForServers().sums_on_host) return share;
  const size_t pushes = BusiestShare(cluster.host_count(), micro_batches).contributions.size();
  share.contributions.assign(pushes, share.micro_batches - 1);
  return share;
}

void FillCosts(const PlanOptions& options, PlanInput* input) {
  Cluster& cluster = input->cluster;
  cluster.latency_ms = (options.latency_us >= 0 ? options.latency_us
                        : options.has_no_costs  ? 0
                                                : 10) /
                       1000;
  if (!options.has_no_costs) {
    cluster.costs = {.message_ms = options.message_us / 1e3,
                     .item_ms = options.item_us / 1e3,
                     .copy_ms_per_byte = options.byte_ns / 1e6,
                     .sum_ms_per_byte = options.sum_ns / 1e6};
  }
  cluster.straggle = options.straggle_percent / 100;
  if (options.mtbf_hours == 0) return;
  input->failures = options.failures;
  input->failures->mtbf_s = options.mtbf_hours * 3600;
}

Result<PlanInput> MakeInput(const PlanOptions& options) {
  PANDO_RETURN_IF_ERROR(CheckOptions(options));
  PANDO_ASSIGN_OR_RETURN(double bytes_per_second, ParseBandwidth("--bandwidth", options.bandwidth));
  PlanInput input = options.input;
  Cluster& cluster = input.cluster;
  cluster.sums_on_rack =
      options.rack_sum == "always" ||
      (options.rack_sum == "auto" && cluster.host_count() > kHostsWithoutRackSums &&
       cluster.workers_per_host == 1);
  const uint32_t micro_batches =
      options.micro_batches > 0 ? options.micro_batches : cluster.workers;
  cluster.share = FindBusiest(cluster, micro_batches);
  if (cluster.has_relays()) {
    const size_t sums = BusiestShare(cluster.rack_count(), micro_batches).contributions.size();
    cluster.rack_pushes =
        static_cast<double>(sums) / static_cast<double>(cluster.share.contributions.size());
  }
  PANDO_RETURN_IF_ERROR(FillModel(options, &input));
  input.work.optimizer_ms = options.optimizer_ms;
  const auto bucket_bytes = static_cast<uint64_t>(std::ldexp(options.bucket_cap_mb, 20));
  input.buckets = {.first_bytes = std::min(BucketLimits{}.first_bytes, bucket_bytes),
                   .bytes = bucket_bytes};
  cluster.bytes_per_ms = bytes_per_second / 1000;
  cluster.order = options.send_order == "ready" ? SendOrder::kAsReady : SendOrder::kAsForwardWants;
  FillCosts(options, &input);
  return input;
}

Result<int> ShowPlan(const PlanOptions& options) {
  PANDO_ASSIGN_OR_RETURN(PlanInput input, MakeInput(options));
  Plan plan = MakePlan(std::move(input));
  if (options.has_memory) {
    const Cluster& cluster = plan.input.cluster;
    MemoryInput memory = options.memory;
    memory.parameter_bytes = plan.input.parameter_count * sizeof(float);
    memory.workers = cluster.workers;
    memory.servers = plan.predictions[0].servers;
    memory.replicas = std::min(cluster.replicas, memory.servers);
    memory.micro_batches = options.micro_batches > 0 ? options.micro_batches : cluster.workers;
    plan.memory = BoundMemory(memory);
  }
  Print("{}", options.is_json ? PlanJson(plan) : PlanText(plan));
  return kExitCompleted;
}

// Accepts numbers of at least `min`. InRange lets NaN pass, and this rule rejects it.
Flag::Rule NumberFrom(double min) {
  const auto check = [min](const std::string& text) {
    const std::optional<double> number = ParseNumber<double>(text);
    if (number && *number >= min && *number <= kNumberMax) return std::string();
    return fmt::format("expected a number from {:g} to {:g}, got {}", min, kNumberMax,
                       Printable(text));
  };
  return Flag::Rule(check);
}

void AddModelFlags(CLI::App& command, PlanOptions* options) {
  AddOption(command, "--model NAME|FILE.toml", &options->model.name,
            "a model of `pando models`, or a network's file")
      .Group("Model");
  AddOption(command, "--parameters N", &options->input.parameter_count,
            "in place of --model: a model with N parameters, spread evenly over its computing",
            InRange(uint64_t{1}, kPlanParametersMax))
      .Group("Model");
  AddModelShapeOptions(command, &options->model);
}

void AddComputeFlags(CLI::App& command, PlanOptions* options) {
  auto add = [&command](const char* usage, auto* value, const char* help, const Flag::Rule& check) {
    AddOption(command, usage, value, help, check).Group("Computing");
  };
  add("--step-ms X", &options->step_ms, "forward and backward of a worker's step, alone",
      NumberFrom(kNumberMin));
  add("--images-per-second X", &options->images_per_second,
      "of a worker alone, in place of --step-ms; needs --batch", NumberFrom(kNumberMin));
  add("--batch N", &options->input.batch, "samples of a step of one worker", InRange(1, 1 << 30));
  add("--micro-batches N", &options->micro_batches, "of a step, shared by the workers [one each]",
      InRange(1, 1 << 20));
  add("--optimizer-ms X", &options->optimizer_ms,
      "update of all parameters on one machine; servers share it [0]", NumberFrom(0));
}

void AddMachineFlags(CLI::App& command, PlanOptions* options) {
  Cluster* const cluster = &options->input.cluster;
  auto add = [&command](const char* usage, uint32_t* value, uint32_t max, const std::string& help) {
    return AddOption(command, usage, value, help, InRange(uint32_t{1}, max)).Group("Machines");
  };
  add("--workers N", &cluster->workers, kWorkersMax, "workers in all").Required();
  add("--workers-per-host N", &cluster->workers_per_host, kWorkersMax,
      "that share a host's link, as GPUs do [1]");
  AddFlag(command, "--host-sum", &cluster->sums_on_host,
          "the workers of a host sum there first, as the threads of one do: one copy crosses "
          "its link")
      .Group("Machines");
  add("--servers N", &cluster->servers, kServersMax,
      "on separate hosts [as many as shorten the step]");
  add("--servers-max N", &options->servers_max, kServersMax,
      "the job's run.servers_max: servers for which shards are small enough [all hosts, at least "
      "16]");
  add("--replicas N", &cluster->replicas, 2,
      fmt::format("of each shard, 1 or 2 [{}]", cluster->replicas));
}

void AddNetworkFlags(CLI::App& command, PlanOptions* options) {
  AddOption(command, "--bandwidth RATE", &options->bandwidth,
            "of a host's link, each way: bits as 25Gbit, bytes as 3GB/s")
      .Required()
      .Group("Network");
  AddOption(command, "--latency-us X", &options->latency_us, "one way [10]", NumberFrom(0))
      .Group("Network");
  AddOption(command, "--send-order NAME", &options->send_order,
            "which shard a link takes first: the one that is ready first, or the one that "
            "forward wants first: ready, forward [ready]",
            AnyWordFrom({"ready", "forward"}))
      .Group("Network");
  AddOption(command, "--bucket-cap-mb X", &options->bucket_cap_mb, "allreduce's buckets, MiB [25]",
            NumberFrom(0))
      .Group("Network");
}

void AddRackFlags(CLI::App& command, PlanOptions* options) {
  Cluster* const cluster = &options->input.cluster;
  AddOption(
      command, "--rack-size N", &cluster->rack_size,
      "hosts of workers in a rack; servers on separate hosts are spread evenly over the racks "
      "[one switch for all]",
      InRange(uint32_t{1}, kWorkersMax))
      .Group("Racks");
  AddOption(command, "--oversubscription X", &cluster->oversubscription,
            "the rate of a rack's hosts together, as a multiple of its uplink's [1]", NumberFrom(1))
      .Group("Racks");
  AddOption(command, "--rack-sum NAME", &options->rack_sum,
            fmt::format("whether the workers of a rack sum what goes to other racks' servers: auto "
                        "(with more than {} hosts of one worker), always, never [auto]",
                        kHostsWithoutRackSums),
            AnyWordFrom({"auto", "always", "never"}))
      .Group("Racks");
}

void AddCostFlags(CLI::App& command, PlanOptions* options) {
  const Flag none = AddFlag(command, "--no-costs", &options->has_no_costs,
                            "messages take no processor time, and the default of --latency-us is 0")
                        .Group("Costs");
  auto add = [&](const char* usage, double* value, const char* help) {
    AddOption(command, usage, value, help, NumberFrom(0)).Excludes(none).Group("Costs");
  };
  add("--message-us X", &options->message_us, "processor time of a message, at each end [10]");
  add("--item-us X", &options->item_us, "of a message's shard, at each end [3]");
  add("--byte-ns X", &options->byte_ns, "of a message's byte, at each end [0.12]");
  add("--sum-ns X", &options->sum_ns, "to add a received byte of gradients [0.1]");
}

void AddFailureFlags(CLI::App& command, PlanOptions* options) {
  auto add = [&](const char* usage, double* value, double min, const char* help) {
    AddOption(command, usage, value, help, NumberFrom(min)).Group("Stragglers and failures");
  };
  add("--straggle-percent X", &options->straggle_percent, 0,
      "standard deviation of a worker's computing time, of its mean [0]");
  add("--mtbf-hours X", &options->mtbf_hours, kNumberMin,
      "mean time between the failures of one machine [no failures]");
  Failures* const failures = &options->failures;
  add("--recovery-s X", &failures->recovery_s, 0, "lost by a failure with 2 replicas [1.93]");
  add("--checkpoint-s X", &failures->checkpoint_s, 0,
      "to store a checkpoint, for allreduce and 1 replica [1]");
  add("--restart-s X", &failures->restart_s, 0, "to restart from a checkpoint [2.11]");
}

void AddMemoryFlags(CLI::App& command, PlanOptions* options) {
  AddFlag(command, "--memory", &options->has_memory,
          "also the most memory that the protocol lets each process hold (docs/protocol.md, "
          "section 12)")
      .Group("Memory");
  AddOption(command, "--threads N", &options->memory.threads, "computing threads per worker [1]",
            InRange(1, 1024))
      .Group("Memory");
  AddOption(command, "--optimizer-states N", &options->memory.optimizer_states,
            "floats beside each parameter: SGD 0, momentum 1, Adam 2 [2]", InRange(0, 4))
      .Group("Memory");
  AddOption(command, "--staleness N", &options->memory.staleness, "train.staleness of the job [0]",
            InRange(0, int{kStalenessMax}))
      .Group("Memory");
}

}  // namespace

Subcommand AddPlanCommand(CLI::App& app) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App& command = DeclareCommand(
      app, "plan",
      "Predicts a step's time on a number of machines: parameter servers beside allreduce.",
      "The formulas, and what they leave out: docs/performance.md.\n\nExamples:\n"
      "  pando plan --model resnet101 --workers 16 --servers 4 --bandwidth 25Gbit --step-ms 180\n"
      "  pando plan --parameters 23834568 --workers 512 --workers-per-host 4 --host-sum \\\n"
      "    --bandwidth 25Gbit --images-per-second 142 --batch 64\n");
  AddModelFlags(command, options.get());
  AddComputeFlags(command, options.get());
  AddMachineFlags(command, options.get());
  AddNetworkFlags(command, options.get());
  AddRackFlags(command, options.get());
  AddCostFlags(command, options.get());
  AddFailureFlags(command, options.get());
  AddMemoryFlags(command, options.get());
  AddFlag(command, "--json", &options->is_json, "as JSON");
  return [options] { return ShowPlan(*options); };
}

}  // namespace pando
