#include "models/layer.h"

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

// What is wrong with the layer for any input; empty: nothing.
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
  return pixels <= kValuesMax && pixels * shape.channels <= kValuesMax;  // of 32 bits: no wrap
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

}  // namespace pando
