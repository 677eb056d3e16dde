#include "models/model_cost.h"

namespace pando {

uint64_t ForwardFlops(const Layer& layer) {
  const LayerRules& rules = RulesFor(layer.spec.kind);
  return rules.forward_flops == nullptr ? layer.out.size() : rules.forward_flops(layer);
}

uint64_t BackwardFlops(const Layer& layer) {
  const bool has_weight_product = RulesFor(layer.spec.kind).has_weight_product;
  const uint64_t passes = (has_weight_product ? 1 : 0) + (layer.has_input_gradient ? 1 : 0);
  return passes * ForwardFlops(layer);
}

ModelCost CountCost(const Graph& graph) {
  ModelCost cost;
  for (const Layer& layer : graph.layers()) {
    cost.forward_flops += ForwardFlops(layer);
    cost.backward_flops += BackwardFlops(layer);
  }
  return cost;
}

}  // namespace pando
