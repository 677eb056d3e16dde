// StageBuilder cuts a graph's layers into stages. Each stage is a run of layers. A layer joins the
// previous one if one operation does both and no other layer reads the value between them.
// PlanStages calls it, and so does the kinds' make_stage (models/layers).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/stage.h"

namespace pando {

// The places of a layer's tensors in the flat vector, in its order.
struct TensorPlaces {
  size_t weight = 0, bias = 0, mean = 0, variance = 0;
  bool has_bias = false;
};

class StageBuilder {
 public:
  explicit StageBuilder(const Graph& graph);
  std::vector<StagePlan> Build();

  // ---- for make_stage; `layer` is the last one that was taken ----------------------------------
  TensorPlaces FindTensors(const Layer& layer) const;
  // The next layer, if it may join: it reads the previous one and is its only reader. Null: none.
  const Layer* Joiner() const;
  // Takes Joiner() into the stage.
  void Join() { ++next_; }
  // Takes in an activation that may join; kNone if there is none.
  Activation JoinActivation();
  // Takes in an addition that may join. Its other summand becomes the stage's second input.
  bool JoinAdd();

 private:
  const std::vector<Layer>& layers() const { return graph_.layers(); }
  StagePlan BuildNext();
  int StageFor(int layer) const;

  const Graph& graph_;
  std::vector<int> reader_counts_;   // by layer: readers of its output
  std::vector<int> stage_of_layer_;  // by layer, for layers in a stage
  size_t next_ = 0;                  // the next layer not yet in a stage
  std::optional<int> residual_;      // a layer that the stage reads besides its first one's inputs
};

// Helpers of the stages of models/layers: arrays of floats among the bytes that a stage keeps.
inline float* Floats(std::byte* bytes) { return reinterpret_cast<float*>(bytes); }
inline const float* Floats(const std::byte* bytes) { return reinterpret_cast<const float*>(bytes); }

// The bytes of `count` floats with slack, in whole lines.
inline size_t FloatBytes(size_t count) {
  constexpr size_t kLineFloats = 16;
  return (count + kSlackElements + kLineFloats - 1) / kLineFloats * kLineFloats * sizeof(float);
}

// Returns the fault of a layer whose output size, an option, is 0.
inline std::string FindNoOutput(const LayerSpec& spec) {
  return spec.out_units == 0 ? "has an output of size 0; give it at least 1" : "";
}

}  // namespace pando
