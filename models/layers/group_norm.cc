// Group norm: each sample's groups of channels are normalised alone, in training and evaluation.
#include <fmt/format.h>

#include "models/layers/support.h"
#include "models/stage_builder.h"

namespace pando {
namespace {

constexpr LayerKey kKeys[] = {
    {"num_groups", &LayerSpec::groups, LayerKey::Rule::kRequired, 1, kUnitsMax},
    {"eps", &LayerSpec::eps}};

Result<SampleShape> CheckGroups(const std::string& model, const LayerSpec& spec,
                                std::span<const SampleShape> inputs) {
  const SampleShape& in = inputs[0];
  if (in.channels % spec.groups == 0) return in;
  return DoesNotFit(model, spec, in, fmt::format("channels that {} groups divide", spec.groups));
}

void AppendTensors(const LayerSpec& spec, const SampleShape& in, std::vector<TensorSpec>* tensors) {
  tensors->push_back(
      {.name = spec.name + ".weight", .shape = {in.channels}, .init = InitKind::kOne});
  tensors->push_back({.name = spec.name + ".bias", .shape = {in.channels}});
}

// One factor and one summand, once the statistics are known.
uint64_t CountFlops(const Layer& layer) { return 2 * layer.out.size(); }

class GroupNormStage : public Stage {
 public:
  GroupNormStage(const GroupNormSpec& spec, size_t weight, size_t bias, Device device)
      : spec_(spec), weight_(weight), bias_(bias), device_(device) {}
  StageTraits traits() const override { return {.reads_input = true, .may_be_dy = {true}}; }
  void Forward(const Pass& pass, const StageForward& a) const override {
    GroupNormForward(pass.device, spec_,
                     {.sample_count = pass.sample_count,
                      .x = a.x[0],
                      .weight = a.parameters + weight_,
                      .bias = a.parameters + bias_,
                      .y = a.y,
                      .mean = Floats(a.kept),
                      .inverse_std = Floats(a.kept) + RowFloats(pass.sample_count)},
                     a.scratch);
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    GroupNormBackward(pass.device, spec_,
                      {.sample_count = pass.sample_count,
                       .x = a.x,
                       .weight = a.parameters + weight_,
                       .mean = Floats(a.kept),
                       .inverse_std = Floats(a.kept) + RowFloats(pass.sample_count),
                       .dy = a.dy,
                       .dx = a.dx[0],
                       .dweight = a.gradients + weight_,
                       .dbias = a.gradients + bias_},
                      a.scratch);
  }
  // The means, then the inverse deviations: [samples, groups] each.
  size_t kept_bytes(uint32_t sample_count) const override {
    return 2 * RowFloats(sample_count) * sizeof(float);
  }
  size_t scratch_bytes(uint32_t sample_count) const override {
    return GroupNormScratchBytes(device_, spec_, sample_count);
  }

 private:
  size_t RowFloats(uint32_t sample_count) const {
    return FloatBytes(size_t{sample_count} * spec_.groups) / sizeof(float);
  }

  GroupNormSpec spec_;
  size_t weight_;  // where they lie in the flat vector
  size_t bias_;
  Device device_;
};

std::unique_ptr<Stage> MakeGroupNorm(StageBuilder& builder, const Layer& layer) {
  const GroupNormSpec spec{.shape = layer.out, .groups = layer.spec.groups, .eps = layer.spec.eps};
  return std::make_unique<GroupNormStage>(spec, builder.Offset(layer, 0), builder.Offset(layer, 1),
                                          builder.device());
}

}  // namespace

const LayerRules kGroupNormRules{.name = "GroupNorm",
                                 .keys = kKeys,
                                 .output_shape = CheckGroups,
                                 .append_tensors = AppendTensors,
                                 .forward_flops = CountFlops,
                                 .make_stage = MakeGroupNorm};

}  // namespace pando
