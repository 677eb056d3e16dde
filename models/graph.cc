#include "models/graph.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "common/nearest_name.h"
#include "models/layer_rules.h"

namespace pando {
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
                          : "is there twice; every layer needs a name of its own");
  }
  return index;
}

// A way from `layer` back to itself along inputs, as "a -> b -> a"; empty: there is none.
std::string FindCycle(const std::vector<LayerSpec>& specs, const LayerIndex& index, int layer) {
  std::map<int, int> reader;  // of each layer that `layer` depends on, one that reads it
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

// Indices of what layer `i` reads; all of them below i.
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
      if (hint.empty()) hint = fmt::format("the network's own input is '{}'", kInputName);
      return LayerError(model, spec, fmt::format("reads '{}', which is no layer; {}", name, hint));
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
                      "makes something that no layer reads; read it, or leave it out");
  }
  return Status();
}

}  // namespace

const char* LayerKindName(LayerKind kind) {
  switch (kind) {
    case LayerKind::kConv2d:
      return "Conv2d";
    case LayerKind::kLinear:
      return "Linear";
    case LayerKind::kBatchNorm:
      return "BatchNorm2d";
    case LayerKind::kRelu:
      return "ReLU";
    case LayerKind::kRelu6:
      return "ReLU6";
    case LayerKind::kAdd:
      return "Add";
    case LayerKind::kMaxPool2d:
      return "MaxPool2d";
    case LayerKind::kAveragePool2d:
      return "AvgPool2d";
    case LayerKind::kGlobalAveragePool:
      return "GlobalAvgPool2d";
    case LayerKind::kAdaptiveAveragePool:
      return "AdaptiveAvgPool2d";
    case LayerKind::kDropout:
      return "Dropout";
    case LayerKind::kDropout2d:
      return "Dropout2d";
    case LayerKind::kFlatten:
      return "Flatten";
  }
  return "?";
}

std::string ShapeText(const SampleShape& s) {
  return fmt::format("{} x {} x {}", s.height, s.width, s.channels);
}

Result<Graph> Graph::Build(const std::string& model, const std::vector<LayerSpec>& specs,
                           SampleShape input, uint32_t class_count) {
  if (input.size() == 0 || class_count == 0) {
    return InvalidArgument(
        fmt::format("model {}: the data set has samples of {} (height x width x channels) and {} "
                    "classes; none of these may be 0",
                    model, ShapeText(input), class_count));
  }
  if (specs.empty()) return InvalidArgument(fmt::format("model {} has no layers", model));
  Result<LayerIndex> index = IndexLayers(model, specs);
  if (!index.ok()) return index.status();
  Graph graph;
  graph.input_ = input;
  graph.class_count_ = class_count;
  std::vector<TensorSpec> tensors;
  for (size_t i = 0; i < specs.size(); ++i) {
    Result<std::vector<int>> inputs = FindInputs(model, specs, *index, static_cast<int>(i));
    if (!inputs.ok()) return inputs.status();
    std::vector<SampleShape> shapes;
    for (int from : *inputs) shapes.push_back(graph.ShapeOf(from));
    Result<SampleShape> out = OutputShape(model, specs[i], shapes);
    if (!out.ok()) return out.status();
    const size_t first_tensor = tensors.size();
    AppendTensors(specs[i], shapes[0], &tensors);
    graph.layers_.push_back(
        {specs[i], *std::move(inputs), shapes[0], *out, first_tensor, tensors.size()});
  }
  if (Status s = CheckAllRead(model, graph.layers_); !s.ok()) return s;
  const SampleShape scores{1, 1, class_count};
  if (const SampleShape last = graph.layers_.back().out; last != scores) {
    return DoesNotFit(model, specs.back(), last, "to end in " + ShapeText(scores));
  }
  tensors.push_back(MetricTensorSpec());
  graph.layout_ = TensorLayout(std::move(tensors));
  return graph;
}

}  // namespace pando
