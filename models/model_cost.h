// The computing cost of a model, counted from its graph. Called by `pando model` and benchmarks.
#pragma once

#include <cstdint>

#include "models/graph.h"

namespace pando {

// Floating-point operations of one sample; a multiply-add is two.
uint64_t ForwardFlops(const Layer& layer);
// For gradients of weights and of the input; the latter only if something before it is trained.
uint64_t BackwardFlops(const Layer& layer);

struct ModelCost {  // sums over layers
  uint64_t forward_flops = 0;
  uint64_t backward_flops = 0;
};
ModelCost CountCost(const Graph& graph);

}  // namespace pando
