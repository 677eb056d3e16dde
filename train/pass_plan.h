// The plan of a pass: which shards each layer reads, and which shards are final after it. Used by
// MicroBatchPass and EvaluationPass. Pure functions of the job's plan and the network.
#pragma once

#include <cstdint>
#include <vector>

#include "models/network.h"
#include "plan/job_plan.h"

namespace pando {

// Layers take turns: forward from the first to the last, then backward from the last to the first.
// What a pass reads in one of them:
struct LayerReads {
  ShardPlan::Run now;   // in this turn
  ShardPlan::Run next;  // in the next turn that reads any; fetched meanwhile
};
// By turn.
std::vector<LayerReads> PlanTrainingReads(const JobPlan& plan, const Network& network);
std::vector<LayerReads> PlanEvaluationReads(const JobPlan& plan, const Network& network);
// The turn of a layer's backward. The turn of its forward is the layer's number.
inline size_t BackwardTurn(const Network& network, uint32_t layer) {
  return 2 * size_t{network.layer_count()} - 1 - layer;
}

// Backward through these layers, from `last` down to `first`, makes the shards of `ready` final:
// they begin in these layers and may reach into later ones.
struct BackwardPart {
  uint32_t first = 0;
  uint32_t last = 0;
  ShardPlan::Run ready;
};
// In the order of backward. Every layer is in one part.
std::vector<BackwardPart> PlanBackwardParts(const JobPlan& plan, const Network& network);

// The shards that hold the metric tensor alone: final as soon as the batch is scored.
ShardPlan::Run MetricShards(const JobPlan& plan);

}  // namespace pando
