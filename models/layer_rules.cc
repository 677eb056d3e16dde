#include "models/layer_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/network_file.h"

namespace pando {
namespace {

// Output length of a window sliding over one axis; 0 if it does not fit.
uint32_t Slide(uint32_t length, const LayerSpec& spec) {
  const uint64_t padded = uint64_t{length} + 2 * uint64_t{spec.padding};
  return padded < spec.window ? 0 : static_cast<uint32_t>((padded - spec.window) / spec.stride + 1);
}

// What is wrong with the layer whatever enters it; empty: nothing.
std::string BadOptions(const LayerSpec& spec) {
  const bool has_units = spec.kind == LayerKind::kConv2d || spec.kind == LayerKind::kLinear ||
                         spec.kind == LayerKind::kAdaptiveAveragePool;
  const bool is_max_pool = spec.kind == LayerKind::kMaxPool2d;
  const bool is_average_pool = spec.kind == LayerKind::kAveragePool2d;
  if (has_units && spec.out_units == 0) return "has an output of size 0; give it at least 1";
  if (spec.window == 0 || spec.stride == 0 || spec.groups == 0) {
    return fmt::format("has window {}, stride {} and {} groups; each is at least 1", spec.window,
                       spec.stride, spec.groups);
  }
  if (is_max_pool && spec.padding > spec.window / 2) {
    return fmt::format("has padding {}, more than half its window of {}", spec.padding,
                       spec.window);
  }
  if (is_average_pool && spec.padding > 0) return "is an average pool, which takes no padding";
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
  return "";
}

Result<SampleShape> SlidingShape(const std::string& model, const LayerSpec& spec,
                                 const SampleShape& in) {
  const bool is_conv = spec.kind == LayerKind::kConv2d;
  if (is_conv && (in.channels % spec.groups != 0 || spec.out_units % spec.groups != 0)) {
    return DoesNotFit(model, spec, in,
                      fmt::format("channels that {} groups divide, its {} outputs too", spec.groups,
                                  spec.out_units));
  }
  const uint32_t channels = is_conv ? spec.out_units : in.channels;
  const SampleShape out{Slide(in.height, spec), Slide(in.width, spec), channels};
  if (out.height > 0 && out.width > 0) return out;
  const uint32_t least = spec.window - std::min(spec.window, 2 * spec.padding);
  return DoesNotFit(model, spec, in, fmt::format("at least {} x {} x 1", least, least));
}

Result<SampleShape> AddShape(const std::string& model, const LayerSpec& spec,
                             const std::vector<SampleShape>& inputs) {
  if (inputs[0] == inputs[1]) return inputs[0];
  return LayerError(model, spec,
                    fmt::format("adds {} and {} (height x width x channels), which must be equal",
                                ShapeText(inputs[0]), ShapeText(inputs[1])));
}

TensorSpec StatisticSpec(const LayerSpec& spec, const char* suffix, uint32_t channels,
                         InitKind init) {
  return {.name = spec.name + suffix,
          .shape = {channels},
          .kind = TensorKind::kStatistic,
          .init = init,
          .momentum = spec.momentum};
}

// Elements of a weight that take part in one output, or (fan-out, as PyTorch counts) are fed by one
// input; groups do not divide the latter.
double FanIn(const std::vector<uint64_t>& weight) {
  double count = 1;
  for (size_t d = 1; d < weight.size(); ++d) count *= static_cast<double>(weight[d]);
  return count;
}
double FanOut(const std::vector<uint64_t>& weight) {
  double count = static_cast<double>(weight[0]);
  for (size_t d = 2; d < weight.size(); ++d) count *= static_cast<double>(weight[d]);
  return count;
}

void AppendWeightAndBias(const LayerSpec& spec, const SampleShape& in,
                         std::vector<TensorSpec>* tensors) {
  std::vector<uint64_t> shape{spec.out_units, in.channels / spec.groups};
  if (spec.kind == LayerKind::kConv2d) shape.insert(shape.end(), {spec.window, spec.window});
  TensorSpec weight{.name = spec.name + ".weight", .shape = shape};
  TensorSpec bias{.name = spec.name + ".bias", .shape = {spec.out_units}};
  switch (spec.init) {
    case WeightInit::kUniformFanIn:
      weight.init = bias.init = InitKind::kUniform;
      weight.init_bound = bias.init_bound = static_cast<float>(1.0 / std::sqrt(FanIn(shape)));
      break;
    case WeightInit::kKaimingNormalFanOut:
      weight.init = InitKind::kNormal;
      weight.init_stddev = static_cast<float>(std::sqrt(2.0 / FanOut(shape)));
      break;
    case WeightInit::kNormal:
      weight.init = InitKind::kNormal;
      weight.init_stddev = spec.init_stddev;
      break;
  }
  tensors->push_back(std::move(weight));
  if (spec.bias) tensors->push_back(std::move(bias));
}

}  // namespace

bool IsWithinValuesMax(const SampleShape& shape) {
  const uint64_t pixels = uint64_t{shape.height} * shape.width;
  return pixels <= kValuesMax && pixels * shape.channels <= kValuesMax;  // of 32 bits each: no wrap
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

namespace {

Result<SampleShape> ShapeByKind(const std::string& model, const LayerSpec& spec,
                                const std::vector<SampleShape>& inputs) {
  const size_t wanted_count = spec.kind == LayerKind::kAdd ? 2 : 1;
  if (inputs.size() != wanted_count) {
    return LayerError(model, spec,
                      fmt::format("({}) has {} inputs but needs {}", LayerKindName(spec.kind),
                                  inputs.size(), wanted_count));
  }
  if (const std::string bad = BadOptions(spec); !bad.empty()) return LayerError(model, spec, bad);
  const SampleShape& in = inputs[0];
  switch (spec.kind) {
    case LayerKind::kConv2d:
    case LayerKind::kMaxPool2d:
    case LayerKind::kAveragePool2d:
      return SlidingShape(model, spec, in);
    case LayerKind::kLinear:
      if (in.height != 1 || in.width != 1) return DoesNotFit(model, spec, in, "1 x 1 x features");
      return SampleShape{1, 1, spec.out_units};
    case LayerKind::kFlatten:
      return SampleShape{1, 1, static_cast<uint32_t>(in.size())};
    case LayerKind::kGlobalAveragePool:
      return SampleShape{1, 1, in.channels};
    case LayerKind::kAdaptiveAveragePool:
      return SampleShape{spec.out_units, spec.out_units, in.channels};
    case LayerKind::kAdd:
      return AddShape(model, spec, inputs);
    case LayerKind::kBatchNorm:
    case LayerKind::kRelu:
    case LayerKind::kRelu6:
    case LayerKind::kDropout:
    case LayerKind::kDropout2d:
      return in;
  }
  return Internal("unknown layer kind");
}

}  // namespace

Result<SampleShape> OutputShape(const std::string& model, const LayerSpec& spec,
                                const std::vector<SampleShape>& inputs) {
  Result<SampleShape> out = ShapeByKind(model, spec, inputs);
  if (!out.ok() || IsWithinValuesMax(*out)) return out;
  return LayerError(
      model, spec,
      fmt::format("makes {} (height x width x channels) of a sample, and {} values is "
                  "the most a layer may make",
                  ShapeText(*out), kValuesMax));
}

void AppendTensors(const LayerSpec& spec, const SampleShape& in, std::vector<TensorSpec>* tensors) {
  if (spec.kind == LayerKind::kConv2d || spec.kind == LayerKind::kLinear) {
    AppendWeightAndBias(spec, in, tensors);
  }
  if (spec.kind == LayerKind::kBatchNorm) {
    tensors->push_back(
        {.name = spec.name + ".weight", .shape = {in.channels}, .init = InitKind::kOne});
    tensors->push_back({.name = spec.name + ".bias", .shape = {in.channels}});
    tensors->push_back(StatisticSpec(spec, ".running_mean", in.channels, InitKind::kZero));
    tensors->push_back(StatisticSpec(spec, ".running_var", in.channels, InitKind::kOne));
  }
}

}  // namespace pando
