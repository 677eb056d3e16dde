#include "models/model_cost.h"

namespace pando {

uint64_t ForwardFlops(const Layer& layer) {
  const LayerSpec& spec = layer.spec;
  const uint64_t outputs = layer.out.size();
  const uint64_t bias = spec.bias ? outputs : 0;
  switch (spec.kind) {
    case LayerKind::kConv2d: {
      const uint64_t weights_per_output =
          uint64_t{spec.window} * spec.window * (layer.in.channels / spec.groups);
      return 2 * weights_per_output * outputs + bias;
    }
    case LayerKind::kLinear:
      return 2 * layer.in.size() * outputs + bias;
    case LayerKind::kBatchNorm:
      return 2 * outputs;  // one factor and one summand, once the statistics are known
    case LayerKind::kMaxPool2d:
    case LayerKind::kAveragePool2d:
      return uint64_t{spec.window} * spec.window * outputs;
    case LayerKind::kGlobalAveragePool:
    case LayerKind::kAdaptiveAveragePool:
      return layer.in.size();
    case LayerKind::kRelu:
    case LayerKind::kRelu6:
    case LayerKind::kAdd:
    case LayerKind::kDropout:
    case LayerKind::kDropout2d:
      return outputs;
    case LayerKind::kFlatten:
      return 0;
  }
  return 0;
}

uint64_t BackwardFlops(const Layer& layer) {
  const bool has_weights =
      layer.spec.kind == LayerKind::kConv2d || layer.spec.kind == LayerKind::kLinear;
  const uint64_t passes = (has_weights ? 1 : 0) + (layer.has_input_gradient ? 1 : 0);
  return passes * ForwardFlops(layer);
}

ModelCost CostOf(const Graph& graph) {
  ModelCost cost;
  for (const Layer& layer : graph.layers()) {
    cost.forward_flops += ForwardFlops(layer);
    cost.backward_flops += BackwardFlops(layer);
  }
  return cost;
}

}  // namespace pando
