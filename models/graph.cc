#include "models/graph.h"

#include <fmt/format.h>

#include <cmath>

namespace pando {
namespace {

std::string Text(const SampleShape& s) {
  return fmt::format("{} x {} x {} (height x width x channels)", s.height, s.width, s.channels);
}

Status DoesNotFit(const std::string& model, const LayerSpec& spec, const SampleShape& in,
                  const std::string& wanted) {
  return InvalidArgument(
      fmt::format("model {}: layer '{}' gets {} but needs {}; choose another model or other data",
                  model, spec.name, Text(in), wanted));
}

// Output length of a window sliding over one axis; 0 if it does not fit.
uint32_t Slide(uint32_t length, const LayerSpec& spec) {
  const uint32_t padded = length + 2 * spec.padding;
  return padded < spec.window ? 0 : (padded - spec.window) / spec.stride + 1;
}

// The shape that leaves a layer, or why it cannot take what enters.
Result<SampleShape> OutputShape(const std::string& model, const LayerSpec& spec,
                                const SampleShape& in) {
  switch (spec.kind) {
    case LayerKind::kConv2d:
    case LayerKind::kMaxPool2d:
    case LayerKind::kAveragePool2d: {
      const uint32_t channels = spec.kind == LayerKind::kConv2d ? spec.out_units : in.channels;
      const SampleShape out{Slide(in.height, spec), Slide(in.width, spec), channels};
      if (out.size() > 0) return out;
      const uint32_t least = spec.window - std::min(spec.window, 2 * spec.padding);
      return DoesNotFit(model, spec, in, fmt::format("at least {} x {} x 1", least, least));
    }
    case LayerKind::kLinear:
      if (in.height * in.width != 1) return DoesNotFit(model, spec, in, "1 x 1 x features");
      return SampleShape{1, 1, spec.out_units};
    case LayerKind::kFlatten:
      return SampleShape{1, 1, static_cast<uint32_t>(in.size())};
    case LayerKind::kRelu:
    case LayerKind::kDropout:
    case LayerKind::kDropout2d:
      return in;
  }
  return Internal("unknown layer kind");
}

// Weight and bias with PyTorch's default initialisation: both uniform within 1 / sqrt(fan-in).
void AppendTensors(const LayerSpec& spec, const SampleShape& in, std::vector<TensorSpec>& tensors) {
  if (spec.kind != LayerKind::kConv2d && spec.kind != LayerKind::kLinear) return;
  std::vector<uint64_t> shape{spec.out_units, in.channels};
  if (spec.kind == LayerKind::kConv2d) shape.insert(shape.end(), {spec.window, spec.window});
  uint64_t fan_in = 1;
  for (size_t d = 1; d < shape.size(); ++d) fan_in *= shape[d];
  const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(fan_in)));
  tensors.push_back({.name = spec.name + ".weight",
                     .shape = std::move(shape),
                     .init = InitKind::kUniform,
                     .init_bound = bound});
  tensors.push_back({.name = spec.name + ".bias",
                     .shape = {spec.out_units},
                     .init = InitKind::kUniform,
                     .init_bound = bound});
}

}  // namespace

Result<Graph> Graph::Build(const std::string& model, const std::vector<LayerSpec>& specs,
                           SampleShape input, uint32_t class_count) {
  if (input.size() == 0 || class_count == 0) {
    return InvalidArgument(
        fmt::format("model {}: the data set has samples of {} and {} classes; "
                    "none of these may be 0",
                    model, Text(input), class_count));
  }
  Graph graph;
  graph.input_ = input;
  graph.class_count_ = class_count;
  std::vector<TensorSpec> tensors;
  SampleShape shape = input;
  for (const LayerSpec& spec : specs) {
    Result<SampleShape> out = OutputShape(model, spec, shape);
    if (!out.ok()) return out.status();
    const size_t first_tensor = tensors.size();
    AppendTensors(spec, shape, tensors);
    graph.layers_.push_back({spec, shape, *out, first_tensor, tensors.size()});
    shape = *out;
  }
  const SampleShape scores{1, 1, class_count};
  if (!specs.empty() && shape != scores) {
    return DoesNotFit(model, specs.back(), shape, "to end in " + Text(scores));
  }
  tensors.push_back(MetricTensorSpec());
  graph.layout_ = TensorLayout(std::move(tensors));
  return graph;
}

}  // namespace pando
