// Batch norm, with the residual addition and the activation after it; and group norm, which
// normalises each sample's groups of channels separately, in training and evaluation.
#include <fmt/core.h>

#include "models/stage_builder.h"

namespace pando {
namespace {

void AppendScaleAndShift(const LayerSpec& spec, const SampleShape& in,
                         std::vector<TensorSpec>* tensors) {
  tensors->push_back(
      {.name = spec.name + ".weight", .shape = {in.channels}, .init = InitKind::kOne});
  tensors->push_back({.name = spec.name + ".bias", .shape = {in.channels}});
}

// Counts a product and a sum for each output, and nothing for the statistics.
uint64_t CountFlops(const Layer& layer) { return 2 * layer.out.size(); }

// ------------------------------------------------------------------------------------- batch norm

constexpr LayerKey kBatchNormKeys[] = {{"eps", &LayerSpec::eps},
                                       {"momentum", &LayerSpec::momentum}};

void AppendBatchNorm(const LayerSpec& spec, const SampleShape& in,
                     std::vector<TensorSpec>* tensors) {
  AppendScaleAndShift(spec, in, tensors);
  TensorSpec statistic{.name = spec.name + ".running_mean",
                       .shape = {in.channels},
                       .kind = TensorKind::kStatistic,
                       .momentum = spec.momentum};
  tensors->push_back(statistic);
  statistic.name = spec.name + ".running_var";
  statistic.init = InitKind::kOne;
  tensors->push_back(statistic);
}

// BatchNormStage adds its second input before the activation, if spec.has_residual.
class BatchNormStage : public Stage {
 public:
  BatchNormStage(const BatchNormSpec& spec, const TensorPlaces& at) : spec_(spec), at_(at) {}
  StageTraits traits() const override {
    return {.reads_input = true,
            .reads_output = spec_.activation != Activation::kNone,
            .may_be_dy = {true, spec_.has_residual}};
  }
  void Forward(const Pass& pass, const StageForward& a) const override {
    if (pass.mode == Mode::kEvaluate) {
      BatchNormInference(pass.device, spec_,
                         {.sample_count = pass.sample_count,
                          .x = a.x[0],
                          .weight = a.parameters + at_.weight,
                          .bias = a.parameters + at_.bias,
                          .mean = a.parameters + at_.mean,
                          .variance = a.parameters + at_.variance,
                          .residual = a.x[1],
                          .y = a.y},
                         a.scratch);
      return;
    }
    BatchNormForward(pass.device, spec_,
                     {.sample_count = pass.sample_count,
                      .x = a.x[0],
                      .weight = a.parameters + at_.weight,
                      .bias = a.parameters + at_.bias,
                      .residual = a.x[1],
                      .y = a.y,
                      .mean = Floats(a.kept),
                      .inverse_std = Floats(a.kept) + Row(1),
                      .variance = Floats(a.kept) + Row(2)},
                     a.scratch);
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    const float* statistics = Floats(a.kept);
    BatchNormBackward(pass.device, spec_,
                      {.sample_count = pass.sample_count,
                       .x = a.x,
                       .weight = a.parameters + at_.weight,
                       .bias = a.parameters + at_.bias,
                       .mean = statistics,
                       .inverse_std = statistics + Row(1),
                       .y = a.y,
                       .dy = a.dy,
                       .dx = a.dx[0],
                       .dresidual = a.dx[1],
                       .dweight = a.gradients + at_.weight,
                       .dbias = a.gradients + at_.bias},
                      a.scratch);
    PushStatistic(pass, statistics, a.gradients + at_.mean);
    PushStatistic(pass, statistics + Row(2), a.gradients + at_.variance);
  }
  size_t kept_bytes(uint32_t) const override { return Row(3) * sizeof(float); }
  size_t scratch_bytes(Device device, uint32_t) const override {
    return BatchNormScratchBytes(device, spec_);
  }

 private:
  // Returns the first float of a row of `kept`: mean, inverse deviation, unbiased variance.
  size_t Row(size_t row) const { return row * FloatBytes(spec_.shape.channels) / sizeof(float); }
  // The tree's root is divided by the step's samples, so the result is the mean over micro-batches,
  // weighted by their samples.
  void PushStatistic(const Pass& pass, const float* statistic, float* out) const {
    ScaleFloats(pass.device, spec_.shape.channels, statistic, static_cast<float>(pass.sample_count),
                out);
  }

  BatchNormSpec spec_;
  TensorPlaces at_;
};

std::unique_ptr<Stage> MakeBatchNorm(StageBuilder& builder, const Layer& layer) {
  const bool has_residual = builder.JoinAdd();
  const BatchNormSpec spec{.shape = layer.out,
                           .eps = layer.spec.eps,
                           .activation = builder.JoinActivation(),
                           .has_residual = has_residual};
  return std::make_unique<BatchNormStage>(spec, builder.FindTensors(layer));
}

// ------------------------------------------------------------------------------------- group norm

constexpr LayerKey kGroupNormKeys[] = {
    {"num_groups", &LayerSpec::groups, LayerKey::Rule::kRequired, 1, kUnitsMax},
    {"eps", &LayerSpec::eps}};

Result<SampleShape> CheckGroups(const std::string& model, const LayerSpec& spec,
                                std::span<const SampleShape> inputs) {
  const SampleShape& in = inputs[0];
  if (in.channels % spec.groups == 0) return in;
  return DoesNotFit(model, spec, in, fmt::format("channels that {} groups divide", spec.groups));
}

class GroupNormStage : public Stage {
 public:
  GroupNormStage(const GroupNormSpec& spec, const TensorPlaces& at) : spec_(spec), at_(at) {}
  StageTraits traits() const override { return {.reads_input = true, .may_be_dy = {true}}; }
  void Forward(const Pass& pass, const StageForward& a) const override {
    GroupNormForward(pass.device, spec_,
                     {.sample_count = pass.sample_count,
                      .x = a.x[0],
                      .weight = a.parameters + at_.weight,
                      .bias = a.parameters + at_.bias,
                      .y = a.y,
                      .mean = Floats(a.kept),
                      .inverse_std = Floats(a.kept) + RowFloats(pass.sample_count)},
                     a.scratch);
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    GroupNormBackward(pass.device, spec_,
                      {.sample_count = pass.sample_count,
                       .x = a.x,
                       .weight = a.parameters + at_.weight,
                       .mean = Floats(a.kept),
                       .inverse_std = Floats(a.kept) + RowFloats(pass.sample_count),
                       .dy = a.dy,
                       .dx = a.dx[0],
                       .dweight = a.gradients + at_.weight,
                       .dbias = a.gradients + at_.bias},
                      a.scratch);
  }
  // Keeps the means, then the inverse deviations: [samples, groups] each.
  size_t kept_bytes(uint32_t sample_count) const override {
    return 2 * RowFloats(sample_count) * sizeof(float);
  }
  size_t scratch_bytes(Device device, uint32_t sample_count) const override {
    return GroupNormScratchBytes(device, spec_, sample_count);
  }

 private:
  size_t RowFloats(uint32_t sample_count) const {
    return FloatBytes(size_t{sample_count} * spec_.groups) / sizeof(float);
  }

  GroupNormSpec spec_;
  TensorPlaces at_;
};

std::unique_ptr<Stage> MakeGroupNorm(StageBuilder& builder, const Layer& layer) {
  const GroupNormSpec spec{.shape = layer.out, .groups = layer.spec.groups, .eps = layer.spec.eps};
  return std::make_unique<GroupNormStage>(spec, builder.FindTensors(layer));
}

}  // namespace

const LayerRules kBatchNormRules{.name = "BatchNorm2d",
                                 .keys = kBatchNormKeys,
                                 .append_tensors = AppendBatchNorm,
                                 .forward_flops = CountFlops,
                                 .make_stage = MakeBatchNorm};
const LayerRules kGroupNormRules{.name = "GroupNorm",
                                 .keys = kGroupNormKeys,
                                 .output_shape = CheckGroups,
                                 .append_tensors = AppendScaleAndShift,
                                 .forward_flops = CountFlops,
                                 .make_stage = MakeGroupNorm};

}  // namespace pando
