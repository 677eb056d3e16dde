// What `pando models` and `pando model` say, as text, CSV and SVG.
#pragma once

#include <string>

#include "job/batch_check.h"
#include "models/graph.h"
#include "models/network.h"
#include "models/network_plan.h"
#include "plan/job.h"

namespace pando {

// The zoo, one line a model.
std::string ModelsText();

struct ModelReport {
  const Job& job;
  const Graph& graph;
  uint32_t batch = 1;               // samples of the micro-batch
  uint64_t evaluation_samples = 1;  // at a time
  const NetworkMemory& memory;
  const GpuMemoryPlan* gpu = nullptr;  // where a GPU was asked for
};
// Layers with shapes, parameters and FLOPs, and the bytes of a step.
std::string SummaryText(const ModelReport& report);

// Bytes that do not change over a step.
struct ModelBytes {
  uint64_t parameters = 0;  // statistics and padding included
  uint64_t gradients = 0;
  uint64_t optimizer_state = 0;
};
ModelBytes CountBytes(const Job& job, const Graph& graph);

// Memory over one step, a row or a bar for each event of training's plan: a computing thread's of a
// worker, and apart from that the servers'.
std::string TimelineCsv(const ModelBytes& bytes, const MemoryPlan& plan);
std::string TimelineSvg(const std::string& title, const ModelBytes& bytes, const MemoryPlan& plan);

}  // namespace pando
