// pando plan: predicts the time of a step on machines that do not exist yet.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "cli/bandwidth.h"
#include "cli/commands.h"
#include "cli/model_choice.h"
#include "cli/plan_report.h"
#include "cli/plan_work.h"
#include "common/exit_codes.h"
#include "common/printable.h"
#include "common/text.h"

namespace pando {
namespace {

constexpr uint32_t kWorkersMax = 4096;
constexpr uint32_t kServersMax = 1024;
constexpr double kNumberMin = 1e-6;  // where 0 would be none
constexpr double kNumberMax = 1e9;
// Every push of every shard by every host is simulated: a few seconds of them.
constexpr uint64_t kPushesMax = 1'000'000;

struct PlanOptions {
  ModelChoice model;
  uint64_t parameter_count = 0;  // 0: the model's
  uint32_t workers = 0;
  uint32_t workers_per_host = 1;
  uint32_t servers = 0;  // 0: as many as are worth having
  uint32_t replicas = Job{}.replicas;
  uint32_t micro_batches = 0;  // 0: one for each worker
  std::string bandwidth;
  double latency_us = 0;
  double step_ms = 0;  // 0: by images_per_second
  double images_per_second = 0;
  uint64_t batch = 0;
  double optimizer_ms = 0;
  double bucket_cap_mb = 25;
  std::string send_order = "ready";
  bool sums_on_host = false;
  bool is_json = false;
};

Status CheckOptions(const PlanOptions& options) {
  if (options.model.name.empty() == (options.parameter_count == 0))
    return InvalidArgument("expected one of --model NAME and --parameters N");
  if ((options.step_ms > 0) == (options.images_per_second > 0)) {
    return InvalidArgument(
        "expected one of --step-ms X and --images-per-second X with --batch N: what a worker needs "
        "alone");
  }
  if (options.images_per_second > 0 && options.batch == 0) {
    return InvalidArgument(
        "--images-per-second needs --batch N, the samples of a step of one worker");
  }
  if (options.workers % options.workers_per_host != 0) {
    return InvalidArgument(fmt::format("--workers {} is not a multiple of --workers-per-host {}",
                                       options.workers, options.workers_per_host));
  }
  if (options.micro_batches != 0 && options.micro_batches < options.workers) {
    return InvalidArgument(fmt::format(
        "--micro-batches {} leaves some of --workers {} nothing to compute; expected {} "
        "or more",
        options.micro_batches, options.workers, options.workers));
  }
  return {};
}

double ComputeMsOf(const PlanOptions& options) {
  if (options.step_ms > 0) return options.step_ms;
  return static_cast<double>(options.batch) / options.images_per_second * 1000;
}

Status FillModel(const PlanOptions& options, PlanInput* input) {
  const double compute_ms = ComputeMsOf(options);
  if (options.parameter_count > 0) {
    input->model = "a model";
    input->parameter_count = options.parameter_count;
    input->work = WorkOf(options.parameter_count, compute_ms);
    return {};
  }
  Result<Job> job = JobOf(options.model, "--model");
  if (!job.ok()) return job.status();
  Result<Graph> graph = GraphOf(options.model, *job);
  if (!graph.ok()) return graph.status();
  input->model = options.model.name;
  input->parameter_count = graph->layout().parameter_count();
  input->work = WorkOf(*graph, compute_ms);
  return {};
}

// Sums of a host's workers are made of all its micro-batches, and leave with the last of them.
WorkerShare ShareOf(const PlanOptions& options, uint32_t host_count) {
  const uint32_t micro_batches =
      options.micro_batches > 0 ? options.micro_batches : options.workers;
  WorkerShare share = BusiestShare(options.workers, micro_batches);
  if (!options.sums_on_host) return share;
  const size_t pushes = BusiestShare(host_count, micro_batches).contributions.size();
  share.contributions.assign(pushes, share.micro_batches - 1);
  return share;
}

Status CheckSize(const PlanInput& input) {
  const uint64_t shards = input.work.shards.size();
  const uint64_t hosts = input.cluster.host_count();
  const uint64_t pushes = input.cluster.share.contributions.size();
  if (shards * hosts * pushes <= kPushesMax) return {};
  return InvalidArgument(
      fmt::format("{} shards from {} hosts, {} pushes of each, are too many to simulate: expected "
                  "{} in all at most; plan for fewer --workers",
                  shards, hosts, pushes, kPushesMax));
}

Result<PlanInput> InputOf(const PlanOptions& options) {
  if (Status s = CheckOptions(options); !s.ok()) return s;
  Result<double> bytes_per_second = ParseBandwidth("--bandwidth", options.bandwidth);
  if (!bytes_per_second.ok()) return bytes_per_second.status();
  PlanInput input{.batch = options.batch};
  if (Status s = FillModel(options, &input); !s.ok()) return s;
  input.work.optimizer_ms = options.optimizer_ms;
  const auto bucket_bytes = static_cast<uint64_t>(std::ldexp(options.bucket_cap_mb, 20));
  input.buckets = {.first_bytes = std::min(BucketLimits{}.first_bytes, bucket_bytes),
                   .bytes = bucket_bytes};
  input.cluster = {
      .workers = options.workers,
      .workers_per_host = options.workers_per_host,
      .servers = options.servers,
      .replicas = options.replicas,
      .bytes_per_ms = *bytes_per_second / 1000,
      .latency_ms = options.latency_us / 1000,
      .sums_on_host = options.sums_on_host,
      .order = options.send_order == "ready" ? SendOrder::kAsReady : SendOrder::kAsForwardWants};
  input.cluster.share = ShareOf(options, input.cluster.host_count());
  if (Status s = CheckSize(input); !s.ok()) return s;
  return input;
}

int ShowPlan(const PlanOptions& options) {
  Result<PlanInput> input = InputOf(options);
  if (!input.ok()) return Report(input.status());
  const Plan plan = MakePlan(*std::move(input));
  fmt::print("{}", options.is_json ? PlanJson(plan) : PlanText(plan));
  return kExitCompleted;
}

// CLI::Range lets NaN pass.
CLI::Validator NumberFrom(double min, double max) {
  return CLI::Validator(
      [min, max](std::string& text) {
        const std::optional<double> number = ParseNumber<double>(text);
        if (number && *number >= min && *number <= max) return std::string();
        return fmt::format("expected a number from {:g} to {:g}, got {}", min, max,
                           Printable(text));
      },
      "");
}

void AddModelFlags(CLI::App& command, PlanOptions* options) {
  command
      .add_option("--model", options->model.name, "a model of `pando models`, or a network's file")
      ->type_name("NAME|FILE.toml")
      ->group("Model");
  command
      .add_option(
          "--parameters", options->parameter_count,
          "in place of --model: a model with N parameters, spread evenly over its computing")
      ->type_name("N")
      ->check(CLI::Range(uint64_t{1}, kPlanParametersMax))
      ->group("Model");
  AddModelShapeOptions(command, &options->model);
}

void AddComputeFlags(CLI::App& command, PlanOptions* options) {
  auto add = [&command](const char* name, double* value, double min, const char* help) {
    command.add_option(name, *value, help)
        ->type_name("X")
        ->check(NumberFrom(min, kNumberMax))
        ->group("Computing");
  };
  add("--step-ms", &options->step_ms, kNumberMin, "forward and backward of a worker's step, alone");
  add("--images-per-second", &options->images_per_second, kNumberMin,
      "of a worker alone, in place of --step-ms; needs --batch");
  command.add_option("--batch", options->batch, "samples of a step of one worker")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 30))
      ->group("Computing");
  command
      .add_option("--micro-batches", options->micro_batches,
                  "of a step, shared by the workers [one each]")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20))
      ->group("Computing");
  add("--optimizer-ms", &options->optimizer_ms, 0,
      "update of all parameters on one machine; servers share it [0]");
}

void AddMachineFlags(CLI::App& command, PlanOptions* options) {
  auto add = [&command](const char* name, uint32_t* value, uint32_t max, const std::string& help) {
    return command.add_option(name, *value, help)
        ->type_name("N")
        ->check(CLI::Range(uint32_t{1}, max))
        ->group("Machines");
  };
  add("--workers", &options->workers, kWorkersMax, "workers in all")->required();
  add("--workers-per-host", &options->workers_per_host, kWorkersMax,
      "that share a host's link, as GPUs do [1]");
  command
      .add_flag("--host-sum", options->sums_on_host,
                "the workers of a host sum there first, as the threads of one do: one copy crosses "
                "its link")
      ->group("Machines");
  add("--servers", &options->servers, kServersMax,
      "on separate hosts [as many as shorten the step]");
  add("--replicas", &options->replicas, 2,
      fmt::format("of each shard, 1 or 2 [{}]", options->replicas));
}

void AddNetworkFlags(CLI::App& command, PlanOptions* options) {
  command
      .add_option("--bandwidth", options->bandwidth,
                  "of a host's link, each way: bits as 25Gbit, bytes as 3GB/s")
      ->type_name("RATE")
      ->required()
      ->group("Network");
  command.add_option("--latency-us", options->latency_us, "one way [0]")
      ->type_name("X")
      ->check(NumberFrom(0, kNumberMax))
      ->group("Network");
  command
      .add_option("--send-order", options->send_order,
                  "which shard a link takes first: the one that is ready first, or the one that "
                  "forward wants first: ready, forward [ready]")
      ->type_name("NAME")
      ->check(CLI::IsMember({"ready", "forward"}))
      ->group("Network");
  command.add_option("--bucket-cap-mb", options->bucket_cap_mb, "allreduce's buckets, MiB [25]")
      ->type_name("X")
      ->check(NumberFrom(0, kNumberMax))
      ->group("Network");
}

}  // namespace

Subcommand AddPlanCommand(CLI::App& app) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App& command = *app.add_subcommand(
      "plan",
      "Predicts a step's time on a number of machines: parameter servers beside allreduce.");
  AddModelFlags(command, options.get());
  AddComputeFlags(command, options.get());
  AddMachineFlags(command, options.get());
  AddNetworkFlags(command, options.get());
  command.add_flag("--json", options->is_json, "as JSON");
  command.footer(
      std::string(
          "\nThe formulas, and what they leave out: docs/performance.md.\n\nExamples:\n"
          "  pando plan --model resnet101 --workers 16 --servers 4 --bandwidth 25Gbit "
          "--step-ms 180\n"
          "  pando plan --parameters 23834568 --workers 512 --workers-per-host 4 --host-sum "
          "\\\n    --bandwidth 25Gbit --images-per-second 142 --batch 64\n\n") +
      kExitCodesHelp);
  return [options] { return ShowPlan(*options); };
}

}  // namespace pando
