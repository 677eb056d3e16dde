// Batch norm, with the residual addition and the activation after it.
#include "models/layers/support.h"
#include "models/stage_builder.h"

namespace pando {
namespace {

constexpr LayerKey kKeys[] = {{"eps", &LayerSpec::eps}, {"momentum", &LayerSpec::momentum}};

TensorSpec StatisticSpec(const LayerSpec& spec, const char* suffix, uint32_t channels,
                         InitKind init) {
  return {.name = spec.name + suffix,
          .shape = {channels},
          .kind = TensorKind::kStatistic,
          .init = init,
          .momentum = spec.momentum};
}

void AppendTensors(const LayerSpec& spec, const SampleShape& in, std::vector<TensorSpec>* tensors) {
  tensors->push_back(
      {.name = spec.name + ".weight", .shape = {in.channels}, .init = InitKind::kOne});
  tensors->push_back({.name = spec.name + ".bias", .shape = {in.channels}});
  tensors->push_back(StatisticSpec(spec, ".running_mean", in.channels, InitKind::kZero));
  tensors->push_back(StatisticSpec(spec, ".running_var", in.channels, InitKind::kOne));
}

// One factor and one summand, once the statistics are known.
uint64_t CountFlops(const Layer& layer) { return 2 * layer.out.size(); }

// The places of a layer's tensors in the flat vector.
struct BatchNormTensors {
  size_t weight = 0;
  size_t bias = 0;
  size_t mean = 0;
  size_t variance = 0;
};

// has_residual: the second input is added before the activation.
class BatchNormStage : public Stage {
 public:
  BatchNormStage(const BatchNormSpec& spec, const BatchNormTensors& at, Device device,
                 bool has_residual)
      : spec_(spec), at_(at), device_(device), has_residual_(has_residual) {}
  StageTraits traits() const override {
    return {.reads_input = true,
            .reads_output = spec_.activation != Activation::kNone,
            .may_be_dy = {true, has_residual_}};
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
                          .residual = has_residual_ ? a.x[1] : nullptr,
                          .y = a.y},
                         a.scratch);
      return;
    }
    BatchNormForward(pass.device, spec_,
                     {.sample_count = pass.sample_count,
                      .x = a.x[0],
                      .weight = a.parameters + at_.weight,
                      .bias = a.parameters + at_.bias,
                      .residual = has_residual_ ? a.x[1] : nullptr,
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
  size_t scratch_bytes(uint32_t) const override { return BatchNormScratchBytes(device_, spec_); }

 private:
  // First float of a row of `kept`: mean, inverse deviation, unbiased variance.
  size_t Row(size_t row) const { return row * FloatBytes(spec_.shape.channels) / sizeof(float); }
  // The tree's root is divided by the step's samples. The result is the mean over micro-batches,
  // weighted by their samples.
  void PushStatistic(const Pass& pass, const float* statistic, float* out) const {
    ScaleFloats(pass.device, spec_.shape.channels, statistic, static_cast<float>(pass.sample_count),
                out);
  }

  BatchNormSpec spec_;
  BatchNormTensors at_;
  Device device_;
  bool has_residual_;
};

std::unique_ptr<Stage> MakeBatchNorm(StageBuilder& builder, const Layer& layer) {
  const bool has_residual = builder.JoinAdd();
  const BatchNormSpec spec{
      .shape = layer.out, .eps = layer.spec.eps, .activation = builder.JoinActivation()};
  const BatchNormTensors at{.weight = builder.Offset(layer, 0),
                            .bias = builder.Offset(layer, 1),
                            .mean = builder.Offset(layer, 2),
                            .variance = builder.Offset(layer, 3)};
  return std::make_unique<BatchNormStage>(spec, at, builder.device(), has_residual);
}

}  // namespace

const LayerRules kBatchNormRules{.name = "BatchNorm2d",
                                 .keys = kKeys,
                                 .append_tensors = AppendTensors,
                                 .forward_flops = CountFlops,
                                 .make_stage = MakeBatchNorm};

}  // namespace pando
