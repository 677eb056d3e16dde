// Pools: the largest or the average value of a window.
#include <fmt/core.h>

#include "models/stage_builder.h"

namespace pando {
namespace {

constexpr LayerKey kKernelSize{"kernel_size", &LayerSpec::window, LayerKey::Rule::kRequired, 1,
                               kWindowMax};
constexpr LayerKey kStride{"stride", &LayerSpec::stride, LayerKey::Rule::kWindowIfAbsent, 1,
                           kWindowMax};
constexpr LayerKey kMaxPoolKeys[] = {
    kKernelSize, kStride, {"padding", &LayerSpec::padding, {}, 0, kWindowMax}};
constexpr LayerKey kAveragePoolKeys[] = {kKernelSize, kStride};
constexpr LayerKey kAdaptivePoolKeys[] = {
    {"output_size", &LayerSpec::out_units, LayerKey::Rule::kRequired, 1, kWindowMax}};

std::string FindMaxPoolFault(const LayerSpec& spec) {
  if (spec.padding <= spec.window / 2) return "";
  return fmt::format("has padding {}, more than half its window of {}", spec.padding, spec.window);
}

std::string FindAveragePoolFault(const LayerSpec& spec) {
  return spec.padding > 0 ? "is an average pool, which takes no padding" : "";
}

Result<SampleShape> WindowShape(const std::string& model, const LayerSpec& spec,
                                std::span<const SampleShape> inputs) {
  return SlidingShape(model, spec, inputs[0], inputs[0].channels);
}

Result<SampleShape> GlobalShape(const std::string&, const LayerSpec&,
                                std::span<const SampleShape> inputs) {
  return SampleShape{1, 1, inputs[0].channels};
}

Result<SampleShape> AdaptiveShape(const std::string&, const LayerSpec& spec,
                                  std::span<const SampleShape> inputs) {
  return SampleShape{spec.out_units, spec.out_units, inputs[0].channels};
}

uint64_t CountWindows(const Layer& layer) {
  return uint64_t{layer.spec.window} * layer.spec.window * layer.out.size();
}

uint64_t CountInputs(const Layer& layer) { return layer.in.size(); }

Pool2dSpec PoolSpec(const Layer& layer) {
  return {.input = layer.in,
          .window = layer.spec.window,
          .stride = layer.spec.stride,
          .padding = layer.spec.padding};
}

class MaxPoolStage : public Stage {
 public:
  explicit MaxPoolStage(const Pool2dSpec& spec) : spec_(spec) {}
  StageTraits traits() const override { return {}; }
  void Forward(const Pass& pass, const StageForward& a) const override {
    MaxPoolForward(pass.device, spec_, pass.sample_count, a.x[0], a.y,
                   reinterpret_cast<int32_t*>(a.kept));
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    if (a.dx[0] == nullptr) return;
    MaxPoolBackward(pass.device, spec_, pass.sample_count, reinterpret_cast<const int32_t*>(a.kept),
                    a.dy, a.dx[0]);
  }
  size_t kept_bytes(uint32_t sample_count) const override {
    return spec_.output().size() * sample_count * sizeof(int32_t);
  }

 private:
  Pool2dSpec spec_;
};

// An average pool. Its backward needs nothing from its forward.
template <class Spec, auto kForward, auto kBackward>
class AveragePoolStage : public Stage {
 public:
  explicit AveragePoolStage(const Spec& spec) : spec_(spec) {}
  StageTraits traits() const override { return {}; }
  void Forward(const Pass& pass, const StageForward& a) const override {
    kForward(pass.device, spec_, pass.sample_count, a.x[0], a.y);
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    if (a.dx[0] != nullptr) kBackward(pass.device, spec_, pass.sample_count, a.dy, a.dx[0]);
  }

 private:
  Spec spec_;
};

std::unique_ptr<Stage> MakeMaxPool(StageBuilder&, const Layer& layer) {
  return std::make_unique<MaxPoolStage>(PoolSpec(layer));
}

std::unique_ptr<Stage> MakeAveragePool(StageBuilder&, const Layer& layer) {
  using Made = AveragePoolStage<Pool2dSpec, AveragePoolForward, AveragePoolBackward>;
  return std::make_unique<Made>(PoolSpec(layer));
}

// Makes the global pool too, whose output is 1 x 1.
std::unique_ptr<Stage> MakeAdaptiveAveragePool(StageBuilder&, const Layer& layer) {
  using Made =
      AveragePoolStage<AdaptivePool2dSpec, AdaptiveAveragePoolForward, AdaptiveAveragePoolBackward>;
  return std::make_unique<Made>(AdaptivePool2dSpec{
      .input = layer.in, .out_height = layer.out.height, .out_width = layer.out.width});
}

}  // namespace

const LayerRules kMaxPool2dRules{.name = "MaxPool2d",
                                 .keys = kMaxPoolKeys,
                                 .find_fault = FindMaxPoolFault,
                                 .output_shape = WindowShape,
                                 .forward_flops = CountWindows,
                                 .make_stage = MakeMaxPool};
const LayerRules kAveragePool2dRules{.name = "AvgPool2d",
                                     .keys = kAveragePoolKeys,
                                     .find_fault = FindAveragePoolFault,
                                     .output_shape = WindowShape,
                                     .forward_flops = CountWindows,
                                     .make_stage = MakeAveragePool};
const LayerRules kGlobalAveragePoolRules{.name = "GlobalAvgPool2d",
                                         .output_shape = GlobalShape,
                                         .forward_flops = CountInputs,
                                         .make_stage = MakeAdaptiveAveragePool};
const LayerRules kAdaptiveAveragePoolRules{.name = "AdaptiveAvgPool2d",
                                           .keys = kAdaptivePoolKeys,
                                           .find_fault = FindNoOutput,
                                           .output_shape = AdaptiveShape,
                                           .forward_flops = CountInputs,
                                           .make_stage = MakeAdaptiveAveragePool};

}  // namespace pando
