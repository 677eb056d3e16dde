// Stage: one or more layers of a graph that a device computes in one go, and what it keeps between
// forward and backward. A network is a row of stages; models/network.cc walks them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "kernels/ops.h"
#include "models/graph.h"
#include "models/network.h"

namespace pando {

// One micro-batch on its way through the network.
struct Pass {
  Device device;
  uint32_t sample_count = 0;
  MicroBatchName name;
  Mode mode = Mode::kTrain;
  std::span<std::byte> scratch;  // at least scratch_bytes() of every stage
};

// x, y: [samples, in], [samples, out], with slack. `parameters`, `gradients`: the flat vectors.
struct StageForward {
  const float* x;
  const float* parameters;
  float* y;
};
struct StageBackward {
  const float* x;  // as in forward, and so the next two
  const float* parameters;
  const float* y;
  float* dy;  // the stage may change it
  float* dx;  // null: not wanted
  float* gradients;
};

class Stage {
 public:
  virtual ~Stage() = default;
  virtual void Forward(const Pass& pass, const StageForward& args) = 0;
  // Of the micro-batch that Forward had last. Writes dx, and this stage's tensors in gradients.
  virtual void Backward(const Pass& pass, const StageBackward& args) = 0;
  virtual size_t scratch_bytes() const { return 0; }
};

struct StagePlan {
  std::unique_ptr<Stage> stage;
  SampleShape in;
  SampleShape out;
  Network::TensorRun tensors;
};

// kInvalidArgument when the graph has a layer that no stage computes: names it.
Status CheckComputable(const std::string& model, const Graph& graph);

// Cuts the graph's layers into stages and allocates what they keep for up to sample_count_max
// samples.  REQUIRES: CheckComputable().
std::vector<StagePlan> PlanStages(const Graph& graph, Device device, uint32_t sample_count_max);

}  // namespace pando
