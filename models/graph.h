// Graph holds a model's layers, each with its name, its inputs, its input and output shapes, and
// its tensors. It is made once per job from a list of LayerSpec (the zoo's or a user's), and
// networks read it. The table kLayerRules has all facts about each kind of layer.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/batch.h"
#include "common/result.h"
#include "plan/tensor_layout.h"

namespace pando {

enum class Activation : uint8_t;
class Stage;
class StageBuilder;

// A new kind needs a name here, a row in kLayerRules, and a file in models/layers/ that defines its
// LayerRules.
enum class LayerKind : uint8_t {
  kConv2d,
  kLinear,
  kBatchNorm,
  kRelu,
  kRelu6,  // min(max(x, 0), 6)
  kAdd,    // adds two inputs of equal shape
  kMaxPool2d,
  kAveragePool2d,
  kGlobalAveragePool,    // to 1 x 1
  kAdaptiveAveragePool,  // to out_units x out_units, windows as PyTorch's
  kDropout,              // drops single elements
  kDropout2d,            // drops whole channels
  kFlatten,              // channels first, as PyTorch does
  kGroupNorm,            // per sample and group of channels
};

// How weight and bias of version 0 are drawn. The default is PyTorch's: both are uniform within 1 /
// sqrt(fan-in). The others set the bias to 0.
enum class WeightInit : uint8_t {
  kUniformFanIn,
  kKaimingNormalFanOut,  // deviation sqrt(2 / fan-out), as torchvision's convolutions
  kNormal,               // deviation init_stddev
};

// The name of the network's input in LayerSpec::inputs.
inline constexpr const char* kInputName = "input";

struct LayerSpec {
  LayerKind kind = LayerKind::kRelu;
  std::string name;                 // stable: tensors ("conv1.weight") and randomness depend on it
  std::vector<std::string> inputs;  // earlier layers, or kInputName; empty: the previous layer
  uint32_t out_units = 0;    // convolution: channels; linear: features; adaptive pool: output side
  uint32_t window = 1;       // convolution: kernel; pools: window
  uint32_t stride = 1;       // convolution, pools
  uint32_t padding = 0;      // convolution, max pool
  uint32_t groups = 1;       // convolution, group norm; depthwise: as many as channels
  bool bias = true;          // convolution, linear
  float probability = 0.0f;  // dropouts
  float eps = 1e-5f;         // batch norm, group norm
  float momentum = 0.1f;     // batch norm: the share of a step in the running statistics
  WeightInit init = WeightInit::kUniformFanIn;
  float init_stddev = 0.01f;  // kNormal
};

struct Layer {
  LayerSpec spec;
  std::vector<int> inputs;  // indices of earlier layers; kGraphInput: the network's input
  SampleShape in;           // the shape of every input
  SampleShape out;
  // [first, last) of the layout: weight and bias; for batch norm also running_mean and running_var.
  size_t first_tensor = 0;
  size_t last_tensor = 0;
  // has_backward: this layer or one before it is trained, so that its output gets a gradient.
  // has_input_gradient: a layer before it is trained, so that an input gets a gradient.
  bool has_backward = false;
  bool has_input_gradient = false;
};
inline constexpr int kGraphInput = -1;

// ------------------------------------------------------------------------------------- the rules

// A key of a layer in a network file, with PyTorch's name.
struct LayerKey {
  enum class Rule : uint8_t {
    kOptional,
    kRequired,
    kUnits,           // required; "classes" means the number of classes
    kWindowIfAbsent,  // PyTorch's default for the stride of a pool
    kOfNormalInit,    // allowed only if init = "normal"
  };
  const char* name;
  std::variant<uint32_t LayerSpec::*, float LayerSpec::*, bool LayerSpec::*,
               WeightInit LayerSpec::*>
      field;
  Rule rule = Rule::kOptional;
  uint32_t min = 0;  // the bounds of a whole number
  uint32_t max = 0;
};
inline constexpr uint32_t kUnitsMax = 1 << 20;   // channels, features, groups
inline constexpr uint32_t kWindowMax = 1 << 12;  // kernels, strides, paddings, output sides

// All facts about one kind. A function's comment says what a null pointer means.
struct LayerRules {
  const char* name;  // PyTorch's: "Conv2d"
  size_t input_count = 1;
  std::span<const LayerKey> keys = {};
  float file_probability = 0.0f;  // the probability if a network file has none
  Activation activation = {};     // the one that the layer applies, if it is an activation

  // Returns what is wrong with the options for any input; "" if they are valid. Null: always valid.
  std::string (*find_fault)(const LayerSpec& spec) = nullptr;
  // Returns the shape of the output; kInvalidArgument if the layer cannot take the input. Null: the
  // shape of the input.
  Result<SampleShape> (*output_shape)(const std::string& model, const LayerSpec& spec,
                                      std::span<const SampleShape> inputs) = nullptr;
  // Appends the layer's tensors, in PyTorch's order. Null: it has none.
  // REQUIRES: `in` fits the layer.
  void (*append_tensors)(const LayerSpec& spec, const SampleShape& in,
                         std::vector<TensorSpec>* tensors) = nullptr;
  // Counts one sample's floating-point operations; a multiply-add is two. Null: one per output.
  uint64_t (*forward_flops)(const Layer& layer) = nullptr;
  bool has_weight_product = false;  // its weights' gradient costs as much as its forward
  std::unique_ptr<Stage> (*make_stage)(StageBuilder& builder, const Layer& layer);
};

extern const LayerRules kConv2dRules, kLinearRules;                          // layers/product.cc
extern const LayerRules kBatchNormRules, kGroupNormRules;                    // layers/norm.cc
extern const LayerRules kReluRules, kRelu6Rules, kAddRules, kFlattenRules;   // layers/pointwise.cc
extern const LayerRules kDropoutRules, kDropout2dRules;                      // layers/pointwise.cc
extern const LayerRules kMaxPool2dRules, kAveragePool2dRules;                // layers/pool.cc
extern const LayerRules kGlobalAveragePoolRules, kAdaptiveAveragePoolRules;  // layers/pool.cc

// The rules of all kinds, in the order of LayerKind.
inline constexpr const LayerRules* kLayerRules[] = {&kConv2dRules,
                                                    &kLinearRules,
                                                    &kBatchNormRules,
                                                    &kReluRules,
                                                    &kRelu6Rules,
                                                    &kAddRules,
                                                    &kMaxPool2dRules,
                                                    &kAveragePool2dRules,
                                                    &kGlobalAveragePoolRules,
                                                    &kAdaptiveAveragePoolRules,
                                                    &kDropoutRules,
                                                    &kDropout2dRules,
                                                    &kFlattenRules,
                                                    &kGroupNormRules};
static_assert(std::size(kLayerRules) == static_cast<size_t>(LayerKind::kGroupNorm) + 1);

inline const LayerRules& RulesFor(LayerKind kind) {
  return *kLayerRules[static_cast<size_t>(kind)];
}
// Returns PyTorch's word: "Conv2d".
inline const char* LayerKindName(LayerKind kind) { return RulesFor(kind).name; }

// ---------------------------------------------------------------------------- shapes and errors

// The most values of a sample, and of a layer's output for one: 4 GiB.
inline constexpr uint64_t kValuesMax = uint64_t{1} << 30;
bool IsWithinValuesMax(const SampleShape& shape);

// Returns for example "28 x 28 x 1", height x width x channels.
std::string ShapeText(const SampleShape& shape);

// Returns kInvalidArgument with the names of the model and the layer, and with `what`.
Status LayerError(const std::string& model, const LayerSpec& spec, const std::string& what);

// Returns "model m: layer 'fc' gets 4 x 4 x 1 (height x width x channels) but needs 1 x 1 x
// features"; for a model that comes with the program, also what to do.
Status DoesNotFit(const std::string& model, const LayerSpec& spec, const SampleShape& in,
                  const std::string& wanted);

// Returns the output shape, with these channels, of a window that slides over the input.
Result<SampleShape> SlidingShape(const std::string& model, const LayerSpec& spec,
                                 const SampleShape& in, uint32_t channels);

// Returns the layer's output shape; kInvalidArgument: its inputs or options do not fit.
Result<SampleShape> OutputShape(const std::string& model, const LayerSpec& spec,
                                std::span<const SampleShape> inputs);

// Counts the floating-point operations of one sample; a multiply-add is two.
uint64_t ForwardFlops(const Layer& layer);
// Counts the operations of backward, with the input's gradient only if an earlier layer is trained.
uint64_t BackwardFlops(const Layer& layer);

// ------------------------------------------------------------------------------------- the graph

class Graph {
 public:
  // Builds the graph. Every spec comes after the layers that it reads, and tensors have that order.
  // The last layer makes the scores. kInvalidArgument: a layer does not fit its input, the last
  // layer does not end in class_count values, or a sample, a layer's output or the tensors are too
  // large (Model::kBytesMax). It also means invalid wiring: a name used twice, an input that is
  // unknown, later or part of a cycle, or an output that no layer reads.
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
