// What a worker computes and sends in a step, from a model's graph or from a count of parameters.
// Called by `pando plan`.
#pragma once

#include <cstdint>

#include "models/graph.h"
#include "plan/step_time.h"

namespace pando {

// Bounds of what is planned for: of a step's transfers, which are simulated one by one.
inline constexpr uint64_t kPlanParametersMax = 4'000'000'000;

// The layers of a graph; compute_ms is divided among them as their FLOPs are. Shards are the job's
// (P5).
StepWork WorkOf(const Graph& graph, double compute_ms);

// Of a model of which only the size is known: parameters and FLOPs spread evenly over it, backward
// twice as long as forward.
StepWork WorkOf(uint64_t parameter_count, double compute_ms);

}  // namespace pando
