#include "cli/plan_work.h"

#include "models/model_cost.h"
#include "plan/tensor_layout.h"

namespace pando {
namespace {

uint64_t BytesBetween(const TensorLayout& layout, size_t first_tensor, size_t last_tensor) {
  return (layout.offset(last_tensor) - layout.offset(first_tensor)) * sizeof(float);
}

// Of each shard the first layer that has floats in it. A shard of the metrics alone goes with the
// last layer.
std::vector<StepShard> ShardsOf(const Graph& graph) {
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

}  // namespace

StepWork WorkOf(const Graph& graph, double compute_ms) {
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
  work.shards = ShardsOf(graph);
  return work;
}

StepWork WorkOf(uint64_t parameter_count, double compute_ms) {
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

}  // namespace pando
