#include "cli/plan_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "common/text.h"
#include "plan/shard_plan.h"
#include "plan/tensor_layout.h"

namespace pando {
namespace {

uint64_t BytesBetween(const TensorLayout& layout, size_t first_tensor, size_t last_tensor) {
  return (layout.offset(last_tensor) - layout.offset(first_tensor)) * sizeof(float);
}

// Assigns each shard to the first layer that has floats in it. A shard of metrics alone belongs to
// the last layer.
std::vector<StepShard> MakeShards(const Graph& graph, uint32_t servers_max) {
  const TensorLayout& layout = graph.layout();
  const std::vector<Layer>& layers = graph.layers();
  std::vector<StepShard> shards;
  uint32_t layer = 0;
  const ShardPlan plan(layout, {.servers_max = servers_max});
  for (const ShardRange& range : plan.ranges()) {
    while (layer + 1 < layers.size() && layout.offset(layers[layer].last_tensor) <= range.first)
      ++layer;
    shards.push_back({.bytes = range.size() * sizeof(float), .layer = layer});
  }
  return shards;
}

constexpr double kBitsPerByte = 8;

using NamedFactor = std::pair<std::string_view, double>;

// Returns a unit's bytes per second; none if the text is not a unit.
std::optional<double> ParseUnit(std::string_view unit) {
  constexpr auto kPrefixes = std::to_array<NamedFactor>({{"", 1},
                                                         {"k", 1e3},
                                                         {"M", 1e6},
                                                         {"m", 1e6},
                                                         {"G", 1e9},
                                                         {"g", 1e9},
                                                         {"T", 1e12},
                                                         {"t", 1e12}});
  constexpr double kBit = 1 / kBitsPerByte;
  constexpr auto kUnits = std::to_array<NamedFactor>(
      {{"bit", kBit}, {"bit/s", kBit}, {"bps", kBit}, {"B", 1}, {"B/s", 1}});
  for (const auto& [prefix, factor] : kPrefixes) {
    if (!unit.starts_with(prefix)) continue;
    for (const auto& [name, bytes] : kUnits) {
      if (unit.substr(prefix.size()) == name) return factor * bytes;
    }
  }
  return std::nullopt;
}

constexpr double kMsPerSecond = 1000;
constexpr double kUsPerMs = 1e3;
constexpr double kNsPerMs = 1e6;

// More servers than sending hosts do not help, except if the shards' sizes are uneven.
constexpr uint32_t kServersTriedMax = 256;

std::string Counted(uint64_t count, const std::string& thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

const Prediction& FindBest(const Plan& plan) {
  return *std::ranges::min_element(plan.predictions, {},
                                   [](const Prediction& p) { return p.time.step_ms; });
}

double ImagesPerSecond(const PlanInput& input, const Prediction& prediction) {
  const double images = static_cast<double>(input.batch) * input.cluster.workers;
  return images / prediction.time.step_ms * kMsPerSecond;
}

std::string SizeLine(const PlanInput& input) {
  return fmt::format("{}: {} parameters, {} of gradients in {}; {:.4g} ms a step alone\n",
                     input.model, input.parameter_count, BytesText(GradientBytes(input.work)),
                     Counted(input.work.shards.size(), "shard"),
                     ComputeMs(input.work) + input.work.optimizer_ms);
}

std::string ClusterLines(const Cluster& cluster) {
  std::string text =
      fmt::format("{} on {}, {} each way, latency {:.4g} us; {} of each shard\n",
                  Counted(cluster.workers, "worker"), Counted(cluster.host_count(), "host"),
                  BandwidthText(cluster.bytes_per_ms * kMsPerSecond), cluster.latency_ms * kUsPerMs,
                  Counted(cluster.replicas, "replica"));
  if (cluster.workers_per_host > 1 && !cluster.has_relays()) {
    text += cluster.sums_on_host
                ? "the workers of a host sum there first: one copy crosses its link (Pando's to "
                  "servers elsewhere,\nunless --host-sum is never; its allreduce does not)\n"
                : "each worker of a host sends its own gradients (--host-sum: one copy a host, as "
                  "Pando's workers\nsend to servers elsewhere)\n";
  }
  if (cluster.rack_size > 0) {
    text += fmt::format("racks of {}, oversubscription {:.4g}; {}\n",
                        Counted(cluster.hosts_per_rack(), "worker host"), cluster.oversubscription,
                        cluster.has_relays() ? "a rack's workers sum what goes to other racks"
                                             : "no sums per rack (--rack-sum)");
  }
  if (const Costs& costs = cluster.costs; costs.has_any()) {
    text += fmt::format(
        "costs at each end: {:.4g} us a message, {:.4g} us a shard, {:.4g} ns a byte; {:.4g} ns to "
        "sum a byte\n",
        costs.message_ms * kUsPerMs, costs.item_ms * kUsPerMs, costs.copy_ms_per_byte * kNsPerMs,
        costs.sum_ms_per_byte * kNsPerMs);
  }
  if (cluster.straggle > 0 && cluster.workers > 1) {
    text += fmt::format("the slowest of {} computes {:.1f} % longer than the mean\n",
                        Counted(cluster.workers, "worker"),
                        100 * cluster.straggle * ExpectedMaximum(cluster.workers));
  }
  if (const size_t pushes = cluster.share.contributions.size(); pushes > 1) {
    text += fmt::format(
        "a worker's micro-batches are no subtree: up to {} pushes of each shard, counted for all "
        "workers;\nequal shares that are powers of two need one (--micro-batches)\n",
        pushes);
  }
  return text;
}

// Returns 0 for a number that the table, in tenths, would show as -0.0.
double WithoutMinusZero(double ms) { return std::abs(ms) < 0.05 ? 0.0 : ms; }

std::string Table(const Plan& plan) {
  const bool has_batch = plan.input.batch > 0;
  const bool has_failures = plan.input.failures.has_value();
  std::string text = fmt::format("\n{:<34}{:>6}{:>11}{:>12}{:>12}{:>11}{}{}\n", "", "hosts",
                                 "step ms", "efficiency", "exposed ms", "link ms",
                                 has_batch ? fmt::format("{:>12}", "images/s") : "",
                                 has_failures ? fmt::format("{:>10}", "goodput") : "");
  for (const Prediction& p : plan.predictions) {
    text += fmt::format("{:<34}{:>6} {:>10.1f} {:>10.1f}% {:>11.1f} {:>10.1f}{}{}\n", p.name,
                        p.host_count, p.time.step_ms, 100 * p.time.efficiency(),
                        WithoutMinusZero(p.time.exposed_ms()), p.time.link_ms,
                        has_batch ? fmt::format(" {:>11.0f}", ImagesPerSecond(plan.input, p)) : "",
                        has_failures ? fmt::format(" {:>8.2f}%", 100 * p.goodput) : "");
  }
  return text;
}

// Says what the goodput in the table assumes.
std::string FailuresLine(const Plan& plan) {
  if (!plan.input.failures) return "";
  const Failures& failures = *plan.input.failures;
  const uint32_t hosts = plan.input.cluster.host_count();
  return fmt::format(
      "Goodput, a machine failing every {:.4g} h: with 2 replicas a failure costs {:.4g} s. "
      "Allreduce, and servers\nwith 1 replica, store a checkpoint ({:.4g} s) every {:.4g} s on {}, "
      "and restart from it ({:.4g} s).\n",
      failures.mtbf_s / 3600, failures.recovery_s, failures.checkpoint_s,
      BestIntervalS(failures, hosts), Counted(hosts, "host"), failures.restart_s);
}

// Compares the better one of the two placements of servers with the better allreduce.
std::string Comparison(const Plan& plan) {
  const auto better = [](auto first, auto last) {
    return std::ranges::min_element(first, last, {},
                                    [](const Prediction& p) { return p.time.step_ms; });
  };
  const auto first = plan.predictions.begin();
  const Prediction& servers = *better(first, first + 2);
  const Prediction& allreduce = *better(first + 2, plan.predictions.end());
  const bool allreduce_wins = allreduce.time.step_ms < servers.time.step_ms;
  const Prediction& best = allreduce_wins ? allreduce : servers;
  const Prediction& other = allreduce_wins ? servers : allreduce;
  const double saved_ms = other.time.step_ms - best.time.step_ms;
  if (saved_ms < 0.0005 * other.time.step_ms)
    return fmt::format("\nNo difference: {} and {} take as long.\n", best.name, other.name);
  const std::string hosts = best.host_count == other.host_count
                                ? std::string()
                                : fmt::format(", on {} instead of {}",
                                              Counted(best.host_count, "host"), other.host_count);
  return fmt::format("\nBest: {}, {:.1f} ms a step less than {} ({:.1f} %){}.\n", best.name,
                     saved_ms, other.name, 100 * saved_ms / other.time.step_ms, hosts);
}

// Says which shard the step with servers on separate hosts waits for, if its transfer is a
// considerable part of the step. Its server answers when it has all copies.
std::string CriticalShardLine(const Plan& plan) {
  constexpr double kWorthSaying = 0.05;
  const Cluster& cluster = plan.input.cluster;
  const StepTime& time = plan.predictions.front().time;
  if (!time.critical_shard) return "";
  const StepShard& shard = plan.input.work.shards[*time.critical_shard];
  const uint32_t copies = cluster.ForServers().copies_per_server();
  const double one_way_ms = copies * static_cast<double>(shard.bytes) / cluster.bytes_per_ms;
  if (2 * one_way_ms < kWorthSaying * time.step_ms) return "";
  return fmt::format(
      "The step waits for shard {} of {} ({}, of layer {} of {}): its {} copies take {:.1f} ms\n"
      "into its server and as long out.\n",
      *time.critical_shard + 1, plan.input.work.shards.size(), BytesText(shard.bytes),
      shard.layer + 1, plan.input.work.layers.size(), copies, one_way_ms);
}

std::string ServersLine(const ServerChoice& choice) {
  const std::string enough = fmt::format("{} ({:.1f} ms a step)", choice.enough, choice.enough_ms);
  const std::string more = choice.enough < choice.tried_max
                               ? fmt::format("; more, up to {}, save less than {:.0f} %",
                                             choice.tried_max, 100 * kLeastGain)
                               : "";
  if (choice.beats_allreduce) {
    return fmt::format("Servers to buy: {}{}. From {} on they are faster than allreduce.\n", enough,
                       more, *choice.beats_allreduce);
  }
  return fmt::format(
      "Servers to buy: none for speed. Allreduce is faster than 1 to {} servers on separate "
      "hosts.\nThe best number of these is {}{}.\n",
      choice.tried_max, enough, more);
}

// Says the shards, and whether the job has others without a key for them.
std::string CutLine(const Plan& plan) {
  const uint32_t cut = plan.input.servers_max;
  const bool is_default = cut == std::max(plan.predictions[0].servers, ShardPlan::kFewServers);
  return fmt::format("The shards are those of run.servers_max = {}{}.\n", cut,
                     is_default ? "" : ": set it in the job");
}

nlohmann::ordered_json PredictionJson(const PlanInput& input, const Prediction& p) {
  nlohmann::ordered_json json{{"strategy", p.key},
                              {"servers", p.servers},
                              {"hosts", p.host_count},
                              {"step_ms", p.time.step_ms},
                              {"efficiency", p.time.efficiency()},
                              {"exposed_ms", p.time.exposed_ms()},
                              {"link_ms", p.time.link_ms}};
  if (input.batch > 0) json["images_per_second"] = ImagesPerSecond(input, p);
  if (input.failures) json["goodput"] = p.goodput;
  return json;
}

}  // namespace

StepWork MakeWork(const Graph& graph, double compute_ms, uint32_t servers_max) {
  const ModelCost cost = CountCost(graph);
  const double ms_per_flop =
      compute_ms / static_cast<double>(cost.forward_flops + cost.backward_flops);
  StepWork work;
  for (const Layer& layer : graph.layers()) {
    work.layers.push_back(
        {.forward_ms = static_cast<double>(ForwardFlops(layer)) * ms_per_flop,
         .backward_ms = static_cast<double>(BackwardFlops(layer)) * ms_per_flop,
         .bytes = BytesBetween(graph.layout(), layer.first_tensor, layer.last_tensor)});
  }
  work.shards = MakeShards(graph, servers_max);
  return work;
}

StepWork MakeWork(uint64_t parameter_count, double compute_ms, uint32_t servers_max) {
  const TensorLayout layout({{.name = "parameters", .shape = {parameter_count}}});
  const ShardPlan plan(layout, {.servers_max = servers_max});
  StepWork work;
  for (uint32_t i = 0; i < plan.shard_count(); ++i) {
    const uint64_t bytes = plan.ranges()[i].size() * sizeof(float);
    const double ms = compute_ms * static_cast<double>(plan.ranges()[i].size()) /
                      static_cast<double>(layout.float_count());
    work.layers.push_back({.forward_ms = ms / 3, .backward_ms = ms * 2 / 3, .bytes = bytes});
    work.shards.push_back({.bytes = bytes, .layer = i});
  }
  return work;
}

Result<double> ParseBandwidth(const std::string& flag, const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  std::string_view unit(at, static_cast<size_t>(end - at));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  const std::optional<double> factor = ParseUnit(unit);
  if (error == std::errc{} && factor && number > 0 && std::isfinite(number * *factor))
    return number * *factor;
  return InvalidArgument(fmt::format(
      "{} {}: expected a number above 0 and a unit, bits as 25Gbit or 100Mbit, or bytes "
      "as 3GB/s or 800MB/s",
      flag, Printable(text)));
}

std::string BandwidthText(double bytes_per_second) {
  constexpr std::array<const char*, 5> kUnits{"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
  double bits = bytes_per_second * kBitsPerByte;
  size_t unit = 0;
  for (; bits >= 1000 && unit + 1 < kUnits.size(); ++unit) bits /= 1000;
  return fmt::format("{:.4g} {}", bits, kUnits[unit]);
}

Plan MakePlan(PlanInput input) {
  Plan plan{.input = std::move(input)};
  const StepWork& work = plan.input.work;
  Cluster& cluster = plan.input.cluster;
  const uint32_t hosts = cluster.host_count();
  const uint32_t tried_max = std::max(std::min(hosts, kServersTriedMax), cluster.servers);
  plan.choice = ChooseServers(work, cluster, plan.input.buckets, tried_max, kLeastGain);
  if (cluster.servers == 0) cluster.servers = plan.choice.enough;
  plan.predictions = {
      {.key = "ps-own-hosts",
       .name = Counted(cluster.servers, "server") + " on separate hosts",
       .servers = cluster.servers,
       .host_count = hosts + cluster.servers,
       .time = ParameterServerStep(work, cluster, ServerPlace::kOwnHosts)},
      {.key = "ps-worker-hosts",
       .name = Counted(hosts, "server") + " on the workers' hosts",
       .servers = hosts,
       .host_count = hosts,
       .time = ParameterServerStep(work, cluster, ServerPlace::kWorkersHosts)},
      {.key = "allreduce",
       .name = "ring allreduce",
       .host_count = hosts,
       .time = AllreduceStep(work, cluster, Rounds::kRing, plan.input.buckets)},
      {.key = "allreduce-halving-doubling",
       .name = "halving-doubling allreduce",
       .host_count = hosts,
       .time = AllreduceStep(work, cluster, Rounds::kHalvingDoubling, plan.input.buckets)}};
  if (plan.input.failures) {
    for (Prediction& p : plan.predictions) {
      const bool has_replicas = std::min(p.servers, cluster.replicas) > 1;
      p.goodput = has_replicas ? GoodputWithReplicas(*plan.input.failures, p.host_count)
                               : GoodputWithCheckpoints(*plan.input.failures, p.host_count);
    }
  }
  return plan;
}

namespace {

// Prints a role's rows, and their sum below them.
std::string MemoryLines(const std::vector<MemoryBound>& memory) {
  std::string text = memory.empty() ? "" : "memory of a process, at most:\n";
  uint64_t sum = 0;
  for (size_t i = 0; i < memory.size(); ++i) {
    const MemoryBound& bound = memory[i];
    sum += bound.bytes;
    const auto line = [&](const std::string& what, uint64_t bytes) {
      text += fmt::format("  {:<10}{:<48}{:>12}\n", bound.role, what, BytesText(bytes));
    };
    line(bound.what, bound.bytes);
    if (i + 1 < memory.size() && memory[i + 1].role == bound.role) continue;
    line("together", std::exchange(sum, 0));
  }
  return text;
}

}  // namespace

std::string PlanText(const Plan& plan) {
  return SizeLine(plan.input) + ClusterLines(plan.input.cluster) + Table(plan) + Comparison(plan) +
         FailuresLine(plan) + ServersLine(plan.choice) + CriticalShardLine(plan) + CutLine(plan) +
         MemoryLines(plan.memory);
}

std::string PlanJson(const Plan& plan) {
  const PlanInput& input = plan.input;
  const ServerChoice& choice = plan.choice;
  const Costs& costs = input.cluster.costs;
  nlohmann::ordered_json json{{"model", input.model},
                              {"parameters", input.parameter_count},
                              {"gradient_bytes", GradientBytes(input.work)},
                              {"servers_max", input.servers_max},
                              {"shards", input.work.shards.size()},
                              {"workers", input.cluster.workers},
                              {"worker_hosts", input.cluster.host_count()},
                              {"replicas", input.cluster.replicas},
                              {"sums_on_host", input.cluster.sums_on_host},
                              {"rack_size", input.cluster.rack_size},
                              {"oversubscription", input.cluster.oversubscription},
                              {"sums_on_rack", input.cluster.has_relays()},
                              {"pushes_per_shard", input.cluster.share.contributions.size()},
                              {"bytes_per_second", input.cluster.bytes_per_ms * kMsPerSecond},
                              {"latency_us", input.cluster.latency_ms * kUsPerMs},
                              {"message_us", costs.message_ms * kUsPerMs},
                              {"item_us", costs.item_ms * kUsPerMs},
                              {"byte_ns", costs.copy_ms_per_byte * kNsPerMs},
                              {"sum_ns", costs.sum_ms_per_byte * kNsPerMs},
                              {"straggle_percent", 100 * input.cluster.straggle},
                              {"alone_ms", ComputeMs(input.work) + input.work.optimizer_ms}};
  if (const auto& failures = input.failures) {
    json["failures"] = {
        {"mtbf_s", failures->mtbf_s},
        {"recovery_s", failures->recovery_s},
        {"checkpoint_s", failures->checkpoint_s},
        {"checkpoint_interval_s", BestIntervalS(*failures, input.cluster.host_count())},
        {"restart_s", failures->restart_s}};
  }
  for (const Prediction& p : plan.predictions)
    json["predictions"].push_back(PredictionJson(input, p));
  json["best"] = FindBest(plan).key;
  json["servers_to_buy"] = {{"enough", choice.enough},
                            {"step_ms", choice.enough_ms},
                            {"least_gain", kLeastGain},
                            {"tried_max", choice.tried_max},
                            {"beats_allreduce_from", nullptr}};
  for (const MemoryBound& bound : plan.memory)
    json["memory"].push_back({{"role", bound.role}, {"what", bound.what}, {"bytes", bound.bytes}});
  if (choice.beats_allreduce)
    json["servers_to_buy"]["beats_allreduce_from"] = *choice.beats_allreduce;
  return json.dump(2) + "\n";
}

}  // namespace pando
