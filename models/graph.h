// Graph: a model's layers, each with its name, its inputs, its input and output shapes, and its
// tensors. Made once per job from a list of LayerSpec (the zoo's or a user's). Networks read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/batch.h"
#include "common/status.h"
#include "models/layer.h"
#include "plan/tensor_layout.h"

namespace pando {

class Graph {
 public:
  // Every spec comes after the layers that it reads, and tensors are in that order. The last layer
  // makes the scores.
  // kInvalidArgument if a layer does not fit its input, or if the last layer does not end in
  // class_count values: names the layer and both shapes. Also for invalid wiring: a name used
  // twice, an input that is unknown, later or part of a cycle, an output that no layer reads. Also
  // if a sample, a layer's output or the tensors are too large (Model::kBytesMax).
  static Result<Graph> Build(const std::string& model, const std::vector<LayerSpec>& specs,
                             SampleShape input, uint32_t class_count);

  SampleShape input() const { return input_; }
  uint32_t class_count() const { return class_count_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const TensorLayout& layout() const { return layout_; }
  SampleShape FindShape(int layer) const { return layer < 0 ? input_ : layers_[layer].out; }

 private:
  SampleShape input_;
  uint32_t class_count_ = 0;
  std::vector<Layer> layers_;
  TensorLayout layout_;
};

struct ModelCost {  // sums over layers; for `pando model` and benchmarks
  uint64_t forward_flops = 0;
  uint64_t backward_flops = 0;
};
ModelCost CountCost(const Graph& graph);

}  // namespace pando
