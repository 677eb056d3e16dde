// Stage is one or more layers of a graph that a device computes together. A network is a list of
// stages. models/network.cc runs them and owns all memory; models/network_plan has the place of
// each array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "models/graph.h"
#include "plan/shard_plan.h"

namespace pando {

enum class Mode : uint8_t {
  kTrain,
  kTrainWithoutDropout,  // to compare gradients with PyTorch's
  kEvaluate,             // no dropout, running statistics, no backward
};

// One pass of a micro-batch through the network.
struct Pass {
  Device device;
  uint32_t sample_count = 0;
  uint64_t seed = 0;
  const PassNumbers* numbers = nullptr;  // in the device's memory
  Mode mode = Mode::kTrain;
  uint32_t input_channels = 0;  // stored channels of the network's input (StoredChannels)
};

inline constexpr size_t kStageInputsMax = 2;

// Arrays of activations are [samples, shape], with slack, of the device's elements. `parameters`
// and `gradients` are the flat vectors. `kept` is what the stage passes from forward to backward.
struct StageForward {
  const void* x[kStageInputsMax];
  const float* parameters;
  void* y;
  std::byte* kept;
  std::span<std::byte> scratch;
};
struct StageBackward {
  const void* x;  // the first input, if reads_input; x, y, parameters and kept are forward's
  const float* parameters;
  const void* y;  // if reads_output
  const std::byte* kept;
  void* dy;                   // the stage may change it
  void* dx[kStageInputsMax];  // null: not needed. If its may_be_dy is set, it may be dy
  bool adds_dx;               // the result is added to dx[0]; only if can_add_dx
  float* gradients;
  std::span<std::byte> scratch;
};

// The memory needs of a stage's backward.
struct StageTraits {
  bool reads_input = false;
  bool reads_output = false;
  bool may_be_dy[kStageInputsMax] = {};  // that input's gradient may use the place of dy
  bool can_add_dx = false;     // on a GPU: the first input's gradient may be added to its place
  bool can_pad_input = false;  // the network's input may have StoredChannels
};

// Threads: any number at once; a stage has no state between calls.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual StageTraits traits() const = 0;
  virtual void Forward(const Pass& pass, const StageForward& args) const = 0;
  // Writes the gradients dx, and those of this stage's tensors in `gradients`.
  // REQUIRES: a training pass.
  virtual void Backward(const Pass& pass, const StageBackward& args) const = 0;
  virtual size_t kept_bytes(uint32_t) const { return 0; }  // for a number of samples
  virtual size_t scratch_bytes(Device, uint32_t) const { return 0; }
};

struct TensorRun {  // [first, last) of the layout's tensors
  size_t first = 0;
  size_t last = 0;
};

struct StagePlan {
  std::unique_ptr<Stage> stage;
  std::vector<int> inputs;  // the stages that make them; kGraphInput: the network's input
  SampleShape out;
  TensorRun tensors;
  TensorRun parameters;         // the tensors that are not statistics
  ShardRange parameter_floats;  // their place in the flat vector
  uint64_t forward_flops = 0;   // for one sample
  std::string layers;           // their names, for people: "conv1 pool1 relu1"
};

// Cuts the graph's layers into stages, in the order of layers.
std::vector<StagePlan> PlanStages(const Graph& graph);

}  // namespace pando
