// The output of `pando models` and `pando model`, as text, CSV and SVG.
#pragma once

#include <string>

#include "job/batch_check.h"
#include "models/graph.h"
#include "models/network.h"
#include "models/network_plan.h"
#include "plan/job.h"

namespace pando {

// Returns a table of the zoo, with one line per model.
std::string ModelsText();

struct ModelReport {
  const Job& job;
  const Graph& graph;
  uint32_t batch = 1;               // samples of the micro-batch
  uint64_t evaluation_samples = 1;  // at a time
  const NetworkMemory& memory;
  const GpuMemoryPlan* gpu = nullptr;  // null unless a GPU was requested
};
// Describes the layers with shapes, parameters and FLOPs, and the bytes that a step needs.
std::string SummaryText(const ModelReport& report);

// The bytes that do not change over a step.
struct ModelBytes {
  uint64_t parameters = 0;  // with statistics and padding
  uint64_t gradients = 0;
  uint64_t optimizer_state = 0;
};
ModelBytes CountBytes(const Job& job, const Graph& graph);

// Show the memory over one step, with a row or a bar for each event of training's plan: the memory
// of one computing thread of a worker, and separately that of the servers.
std::string TimelineCsv(const ModelBytes& bytes, const MemoryPlan& plan);
std::string TimelineSvg(const std::string& title, const ModelBytes& bytes, const MemoryPlan& plan);

}  // namespace pando
