#include "models/graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "common/text.h"
#include "models/model.h"
#include "models/zoo.h"

namespace pando {
namespace {

// Returns the output length of a window that slides over one axis; 0 if it does not fit.
uint32_t Slide(uint32_t length, const LayerSpec& spec) {
  const uint64_t padded = uint64_t{length} + 2 * uint64_t{spec.padding};
  return padded < spec.window ? 0 : static_cast<uint32_t>((padded - spec.window) / spec.stride + 1);
}

// Returns the layer's fault for any input; empty if there is none.
std::string FindFault(const LayerSpec& spec) {
  if (spec.window == 0 || spec.stride == 0 || spec.groups == 0) {
    return fmt::format("has window {}, stride {} and {} groups; each is at least 1", spec.window,
                       spec.stride, spec.groups);
  }
  if (!(spec.probability >= 0 && spec.probability < 1)) {
    return fmt::format("has dropout probability {}; it is at least 0 and below 1",
                       spec.probability);
  }
  if (!(spec.eps > 0 && std::isfinite(spec.eps)) || !(spec.momentum > 0 && spec.momentum <= 1)) {
    return fmt::format(
        "has eps {} and momentum {}; eps is above 0 and finite, momentum above 0 and at most 1",
        spec.eps, spec.momentum);
  }
  if (!(spec.init_stddev >= 0 && std::isfinite(spec.init_stddev))) {
    return fmt::format("has init_std {}; it is at least 0 and finite", spec.init_stddev);
  }
  const LayerRules& rules = RulesFor(spec.kind);
  return rules.find_fault == nullptr ? "" : rules.find_fault(spec);
}

}  // namespace

bool IsWithinValuesMax(const SampleShape& shape) {
  const uint64_t pixels = uint64_t{shape.height} * shape.width;
  return pixels <= kValuesMax && pixels * shape.channels <= kValuesMax;  // fits 32 bits: no wrap
}

std::string ShapeText(const SampleShape& s) {
  return fmt::format("{} x {} x {}", s.height, s.width, s.channels);
}

Status LayerError(const std::string& model, const LayerSpec& spec, const std::string& what) {
  return InvalidArgument(fmt::format("model {}: layer '{}' {}", model, spec.name, what));
}

Status DoesNotFit(const std::string& model, const LayerSpec& spec, const SampleShape& in,
                  const std::string& wanted) {
  return LayerError(
      model, spec,
      fmt::format("gets {} (height x width x channels) but needs {}{}", ShapeText(in), wanted,
                  IsNetworkFile(model) ? "" : "; choose another model or other data"));
}

Result<SampleShape> SlidingShape(const std::string& model, const LayerSpec& spec,
                                 const SampleShape& in, uint32_t channels) {
  const SampleShape out{Slide(in.height, spec), Slide(in.width, spec), channels};
  if (out.height > 0 && out.width > 0) return out;
  const uint32_t least = spec.window - std::min(spec.window, 2 * spec.padding);
  return DoesNotFit(model, spec, in, fmt::format("at least {} x {} x 1", least, least));
}

Result<SampleShape> OutputShape(const std::string& model, const LayerSpec& spec,
                                std::span<const SampleShape> inputs) {
  const LayerRules& rules = RulesFor(spec.kind);
  if (inputs.size() != rules.input_count) {
    return LayerError(model, spec,
                      fmt::format("({}) has {} inputs but needs {}", rules.name, inputs.size(),
                                  rules.input_count));
  }
  if (const std::string fault = FindFault(spec); !fault.empty()) {
    return LayerError(model, spec, fault);
  }
  Result<SampleShape> out = rules.output_shape == nullptr ? Result<SampleShape>(inputs[0])
                                                          : rules.output_shape(model, spec, inputs);
  if (!out.ok() || IsWithinValuesMax(*out)) return out;
  return LayerError(
      model, spec,
      fmt::format("makes {} (height x width x channels) of a sample, and {} values is "
                  "the most a layer may make",
                  ShapeText(*out), kValuesMax));
}

uint64_t ForwardFlops(const Layer& layer) {
  const LayerRules& rules = RulesFor(layer.spec.kind);
  return rules.forward_flops == nullptr ? layer.out.size() : rules.forward_flops(layer);
}

uint64_t BackwardFlops(const Layer& layer) {
  const bool has_weight_product = RulesFor(layer.spec.kind).has_weight_product;
  const uint64_t passes = (has_weight_product ? 1 : 0) + (layer.has_input_gradient ? 1 : 0);
  return passes * ForwardFlops(layer);
}

// ------------------------------------------------------------------------------------- the graph

namespace {

using LayerIndex = std::map<std::string, int>;

Result<LayerIndex> IndexLayers(const std::string& model, const std::vector<LayerSpec>& specs) {
  LayerIndex index{{kInputName, kGraphInput}};
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name.empty()) {
      return InvalidArgument(fmt::format("model {}: layer {} has no name", model, i + 1));
    }
    if (index.emplace(specs[i].name, static_cast<int>(i)).second) continue;
    return LayerError(model, specs[i],
                      specs[i].name == kInputName
                          ? "has the name of the network's input; choose another"
                          : "exists twice; give each layer a unique name");
  }
  return index;
}

// Returns a path from `layer` back to itself along inputs, as "a -> b -> a"; empty if none.
std::string FindCycle(const std::vector<LayerSpec>& specs, const LayerIndex& index, int layer) {
  std::map<int, int> reader;  // for each layer that `layer` depends on, one that reads it
  std::vector<int> open{layer};
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    std::vector<int> inputs;
    if (specs[at].inputs.empty()) inputs.push_back(at - 1);
    for (const std::string& name : specs[at].inputs) {
      if (auto found = index.find(name); found != index.end()) inputs.push_back(found->second);
    }
    for (int input : inputs) {
      if (input == kGraphInput || !reader.emplace(input, at).second) continue;
      open.push_back(input);
    }
  }
  if (!reader.contains(layer)) return "";
  std::string way = specs[layer].name;
  int at = layer;
  do {
    at = reader.at(at);
    way += " -> " + specs[at].name;
  } while (at != layer);
  return way;
}

// Returns the indices of the layers that layer `i` reads; all are below i.
Result<std::vector<int>> FindInputs(const std::string& model, const std::vector<LayerSpec>& specs,
                                    const LayerIndex& index, int i) {
  const LayerSpec& spec = specs[i];
  if (spec.inputs.empty()) return std::vector<int>{i - 1};
  std::vector<int> inputs;
  for (const std::string& name : spec.inputs) {
    const auto found = index.find(name);
    if (found == index.end()) {
      std::vector<std::string> names;
      for (const auto& [known, unused] : index) names.push_back(known);
      std::string hint = DidYouMean(name, names);
      if (hint.empty()) hint = fmt::format("the network's input is '{}'", kInputName);
      return LayerError(model, spec,
                        fmt::format("reads '{}', which is not a layer; {}", Printable(name), hint));
    }
    if (found->second >= i) {
      const std::string cycle = FindCycle(specs, index, i);
      return LayerError(model, spec,
                        cycle.empty()
                            ? fmt::format("reads '{}', which comes after it; move it up", name)
                            : fmt::format("is part of a cycle: {}", cycle));
    }
    inputs.push_back(found->second);
  }
  return inputs;
}

Status CheckSamples(const std::string& model, const SampleShape& input, uint32_t class_count) {
  const bool is_empty =
      input.height == 0 || input.width == 0 || input.channels == 0 || class_count == 0;
  if (!is_empty && IsWithinValuesMax(input)) return Status();
  const std::string fault =
      is_empty ? fmt::format(" and {} classes; none of these may be 0", class_count)
               : fmt::format(", and {} values is the most a sample may have; choose smaller ones",
                             kValuesMax);
  return InvalidArgument(
      fmt::format("model {}: the data set has samples of {} (height x width x channels){}", model,
                  ShapeText(input), fault));
}

// Returns the size of a flat vector with `floats` floats after these tensors are added, each on a
// separate line. nullopt: that is more than a model may have.
std::optional<uint64_t> FloatsWith(uint64_t floats, std::span<const TensorSpec> tensors) {
  constexpr uint64_t kFloatsMax = Model::kBytesMax / sizeof(float);
  constexpr uint64_t kLine = TensorLayout::kAlignFloats;
  for (const TensorSpec& tensor : tensors) {
    uint64_t size = 1;
    for (uint64_t d : tensor.shape) {
      if (__builtin_mul_overflow(size, d, &size) || size > kFloatsMax) return std::nullopt;
    }
    floats += (size + kLine - 1) / kLine * kLine;
    if (floats > kFloatsMax) return std::nullopt;
  }
  return floats;
}

Status TooLarge(const std::string& model, const LayerSpec& spec, const TensorSpec& weight) {
  std::string shape;
  for (uint64_t d : weight.shape) shape += (shape.empty() ? "" : " x ") + std::to_string(d);
  return LayerError(model, spec,
                    fmt::format("has weights of {} and makes the model larger than {} bytes, the "
                                "maximum; use fewer or narrower layers",
                                shape, Model::kBytesMax));
}

Status CheckAllRead(const std::string& model, const std::vector<Layer>& layers) {
  std::vector<bool> is_read(layers.size(), false);
  for (const Layer& layer : layers) {
    for (int input : layer.inputs) {
      if (input != kGraphInput) is_read[input] = true;
    }
  }
  for (size_t i = 0; i + 1 < layers.size(); ++i) {
    if (is_read[i]) continue;
    return LayerError(model, layers[i].spec,
                      "has an output that no layer reads; use it, or remove the layer");
  }
  return Status();
}

}  // namespace

Result<Graph> Graph::Build(const std::string& model, const std::vector<LayerSpec>& specs,
                           SampleShape input, uint32_t class_count) {
  PANDO_RETURN_IF_ERROR(CheckSamples(model, input, class_count));
  if (specs.empty()) return InvalidArgument(fmt::format("model {} has no layers", model));
  PANDO_ASSIGN_OR_RETURN(LayerIndex index, IndexLayers(model, specs));
  Graph graph;
  graph.input_ = input;
  graph.class_count_ = class_count;
  std::vector<TensorSpec> tensors;
  const TensorSpec metrics = MetricTensorSpec();
  std::optional<uint64_t> floats = FloatsWith(0, {&metrics, 1});
  for (size_t i = 0; i < specs.size(); ++i) {
    PANDO_ASSIGN_OR_RETURN(std::vector<int> inputs,
                           FindInputs(model, specs, index, static_cast<int>(i)));
    std::vector<SampleShape> shapes;
    for (int from : inputs) shapes.push_back(graph.FindShape(from));
    PANDO_ASSIGN_OR_RETURN(SampleShape out, OutputShape(model, specs[i], shapes));
    const size_t first_tensor = tensors.size();
    if (const auto append = RulesFor(specs[i].kind).append_tensors; append != nullptr) {
      append(specs[i], shapes[0], &tensors);
    }
    floats = FloatsWith(*floats, std::span(tensors).subspan(first_tensor));
    if (!floats) return TooLarge(model, specs[i], tensors[first_tensor]);
    const bool has_input_gradient = std::ranges::any_of(
        inputs, [&](int from) { return from != kGraphInput && graph.layers_[from].has_backward; });
    const bool has_backward = has_input_gradient || tensors.size() > first_tensor;
    graph.layers_.push_back({specs[i], std::move(inputs), shapes[0], out, first_tensor,
                             tensors.size(), has_backward, has_input_gradient});
  }
  PANDO_RETURN_IF_ERROR(CheckAllRead(model, graph.layers_));
  const SampleShape scores{1, 1, class_count};
  if (const SampleShape last = graph.layers_.back().out; last != scores) {
    return LayerError(model, specs.back(),
                      fmt::format("makes {} (height x width x channels), but the last layer must "
                                  "make {}, a score for each class",
                                  ShapeText(last), ShapeText(scores)));
  }
  tensors.push_back(metrics);
  graph.layout_ = TensorLayout(std::move(tensors));
  return graph;
}

ModelCost CountCost(const Graph& graph) {
  ModelCost cost;
  for (const Layer& layer : graph.layers()) {
    cost.forward_flops += ForwardFlops(layer);
    cost.backward_flops += BackwardFlops(layer);
  }
  return cost;
}

}  // namespace pando
