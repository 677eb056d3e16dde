#include "cli/plan_input.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "common/text.h"
#include "models/graph.h"
#include "plan/tensor_layout.h"

namespace pando {
namespace {

uint64_t BytesBetween(const TensorLayout& layout, size_t first_tensor, size_t last_tensor) {
  return (layout.offset(last_tensor) - layout.offset(first_tensor)) * sizeof(float);
}

// Of each shard the first layer that has floats in it. A shard of the metrics alone goes with the
// last layer.
std::vector<StepShard> MakeShards(const Graph& graph) {
  const TensorLayout& layout = graph.layout();
  const std::vector<Layer>& layers = graph.layers();
  std::vector<StepShard> shards;
  uint32_t layer = 0;
  const ShardPlan plan(layout);
  for (const ShardRange& range : plan.ranges()) {
    while (layer + 1 < layers.size() && layout.offset(layers[layer].last_tensor) <= range.first)
      ++layer;
    shards.push_back({.bytes = range.size() * sizeof(float), .layer = layer});
  }
  return shards;
}

constexpr double kBitsPerByte = 8;

using NamedFactor = std::pair<std::string_view, double>;

// Of a unit's text, in bytes a second; none where it is no unit.
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

}  // namespace

StepWork MakeWork(const Graph& graph, double compute_ms) {
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
  work.shards = MakeShards(graph);
  return work;
}

StepWork MakeWork(uint64_t parameter_count, double compute_ms) {
  const TensorLayout layout({{.name = "parameters", .shape = {parameter_count}}});
  const ShardPlan plan(layout);
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

}  // namespace pando
