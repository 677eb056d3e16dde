// Graph: a model's layers, each with its name, the shapes that enter and leave it, and its tensors.
// Made once per job from a list of LayerSpec (the zoo's); networks read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/batch.h"
#include "common/status.h"
#include "common/tensor_layout.h"

namespace pando {

enum class LayerKind : uint8_t {
  kConv2d,
  kLinear,
  kRelu,
  kMaxPool2d,
  kAveragePool2d,
  kDropout,    // single elements
  kDropout2d,  // whole channels
  kFlatten,    // channels first, as PyTorch does
};

struct LayerSpec {
  LayerKind kind = LayerKind::kRelu;
  std::string name;          // stable: tensors ("conv1.weight") and dropout's randomness hang on it
  uint32_t out_units = 0;    // convolution: channels; linear: features
  uint32_t window = 1;       // convolution: kernel; pools: window
  uint32_t stride = 1;       // convolution, pools
  uint32_t padding = 0;      // convolution
  float probability = 0.0f;  // dropouts
};

struct Layer {
  LayerSpec spec;
  SampleShape in;
  SampleShape out;
  size_t first_tensor = 0;  // [first, last) of the layout: weight, bias
  size_t last_tensor = 0;
};

class Graph {
 public:
  // kInvalidArgument when a layer does not fit what enters it, or when the last layer does not end
  // in class_count values: names the layer and both shapes.
  static Result<Graph> Build(const std::string& model, const std::vector<LayerSpec>& specs,
                             SampleShape input, uint32_t class_count);

  SampleShape input() const { return input_; }
  uint32_t class_count() const { return class_count_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const TensorLayout& layout() const { return layout_; }

 private:
  SampleShape input_;
  uint32_t class_count_ = 0;
  std::vector<Layer> layers_;
  TensorLayout layout_;
};

}  // namespace pando
