// Graph: a model's layers, each with its name, what it reads, the shapes that enter and leave it,
// and its tensors. Made once per job from a list of LayerSpec (the zoo's or a user's); networks
// read it.
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
  kBatchNorm,
  kRelu,
  kRelu6,  // min(max(x, 0), 6)
  kAdd,    // of two inputs of one shape
  kMaxPool2d,
  kAveragePool2d,
  kGlobalAveragePool,    // to 1 x 1
  kAdaptiveAveragePool,  // to out_units x out_units, windows as PyTorch's
  kDropout,              // single elements
  kDropout2d,            // whole channels
  kFlatten,              // channels first, as PyTorch does
};
// PyTorch's word: "Conv2d".
const char* LayerKindName(LayerKind kind);

// How weight and bias of version 0 are drawn. The default is PyTorch's: both uniform within
// 1 / sqrt(fan-in). The others leave the bias 0.
enum class WeightInit : uint8_t {
  kUniformFanIn,
  kKaimingNormalFanOut,  // deviation sqrt(2 / fan-out), as torchvision's convolutions
  kNormal,               // deviation init_stddev
};

// What LayerSpec::inputs calls the network's input.
inline constexpr const char* kInputName = "input";

struct LayerSpec {
  LayerKind kind = LayerKind::kRelu;
  std::string name;                 // stable: tensors ("conv1.weight") and randomness hang on it
  std::vector<std::string> inputs;  // earlier layers, or kInputName; empty: the layer before
  uint32_t out_units = 0;    // convolution: channels; linear: features; adaptive pool: output side
  uint32_t window = 1;       // convolution: kernel; pools: window
  uint32_t stride = 1;       // convolution, pools
  uint32_t padding = 0;      // convolution, max pool
  uint32_t groups = 1;       // convolution; depthwise: as many as channels
  bool bias = true;          // convolution, linear
  float probability = 0.0f;  // dropouts
  float eps = 1e-5f;         // batch norm
  float momentum = 0.1f;     // batch norm: the share of a step in the running statistics
  WeightInit init = WeightInit::kUniformFanIn;
  float init_stddev = 0.01f;  // kNormal
};

struct Layer {
  LayerSpec spec;
  std::vector<int> inputs;  // indices of layers before this one; kGraphInput: the network's input
  SampleShape in;           // of every input
  SampleShape out;
  // [first, last) of the layout: weight, bias; of batch norm running_mean and running_var too.
  size_t first_tensor = 0;
  size_t last_tensor = 0;
  // Something in it or before it is trained: a gradient of its output is made. And so one of what
  // entered, where an input's layer has it too.
  bool has_backward = false;
  bool has_input_gradient = false;
};
inline constexpr int kGraphInput = -1;

// "28 x 28 x 1", height x width x channels.
std::string ShapeText(const SampleShape& shape);

class Graph {
 public:
  // The specs stand in an order in which every layer comes after what it reads; tensors lie in that
  // order. The last layer makes the scores.
  // kInvalidArgument when a layer does not fit what enters it, or when the last layer does not end
  // in class_count values: names the layer and both shapes. Also for wiring that cannot be: a name
  // used twice, an input that is unknown, later or part of a cycle, an output that nobody reads;
  // and for what is too large: samples, what a layer makes of one, tensors beyond Model::kBytesMax.
  static Result<Graph> Build(const std::string& model, const std::vector<LayerSpec>& specs,
                             SampleShape input, uint32_t class_count);

  SampleShape input() const { return input_; }
  uint32_t class_count() const { return class_count_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const TensorLayout& layout() const { return layout_; }
  SampleShape ShapeOf(int layer) const { return layer < 0 ? input_ : layers_[layer].out; }

 private:
  SampleShape input_;
  uint32_t class_count_ = 0;
  std::vector<Layer> layers_;
  TensorLayout layout_;
};

}  // namespace pando
