// StageBuilder cuts a graph's layers into stages. Each stage is a run of layers. A layer joins the
// one before it if one operation does both and no other layer reads the value between them. Called
// by PlanStages, and by the kinds' make_stage (models/layers).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
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

  // ---- for make_stage, whose layer is the last that was taken -----------------------------------
  TensorPlaces FindTensors(const Layer& layer) const;
  // The layer that may join: it reads the one before and is its only reader. Null: none.
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
  std::vector<int> reader_counts_;   // of each layer's output
  std::vector<int> stage_of_layer_;  // for layers in a stage
  size_t next_ = 0;                  // layer not yet in a stage
  std::optional<int> residual_;      // layer that the stage reads besides its first layer's inputs
};

}  // namespace pando
