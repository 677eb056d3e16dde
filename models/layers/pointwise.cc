// Layers that compute each element alone: activations, addition; and flattening, which moves them.
#include <fmt/format.h>

#include "models/stage_builder.h"

namespace pando {
namespace {

Result<SampleShape> AddShape(const std::string& model, const LayerSpec& spec,
                             std::span<const SampleShape> inputs) {
  if (inputs[0] == inputs[1]) return inputs[0];
  return LayerError(model, spec,
                    fmt::format("adds {} and {} (height x width x channels), which must be equal",
                                ShapeText(inputs[0]), ShapeText(inputs[1])));
}

class AddStage : public Stage {
 public:
  AddStage(SampleShape shape, Activation activation) : shape_(shape), activation_(activation) {}
  StageTraits traits() const override {
    return {.reads_output = activation_ != Activation::kNone, .may_be_dy = {true, true}};
  }
  void Forward(const Pass& pass, const StageForward& a) const override {
    AddForward(pass.device, shape_.size() * pass.sample_count, a.x[0], a.x[1], activation_, a.y);
  }
  // The gradient that reuses dy's place is written last.
  void Backward(const Pass& pass, const StageBackward& a) const override {
    const bool is_first_dy = a.dx[0] == a.dy;
    PassOn(pass, a, a.dx[is_first_dy ? 1 : 0]);
    PassOn(pass, a, a.dx[is_first_dy ? 0 : 1]);
  }

 private:
  void PassOn(const Pass& pass, const StageBackward& a, void* dx) const {
    if (dx == nullptr || (dx == a.dy && activation_ == Activation::kNone)) return;
    AddBackward(pass.device, shape_.size() * pass.sample_count, a.y, activation_, a.dy, dx);
  }

  SampleShape shape_;
  Activation activation_;
};

std::unique_ptr<Stage> MakeAdd(StageBuilder& builder, const Layer& layer) {
  return std::make_unique<AddStage>(layer.out, builder.JoinActivation());
}

class ActivationStage : public Stage {
 public:
  ActivationStage(SampleShape shape, Activation activation)
      : shape_(shape), activation_(activation) {}
  StageTraits traits() const override { return {.reads_output = true, .may_be_dy = {true}}; }
  void Forward(const Pass& pass, const StageForward& a) const override {
    const size_t count = shape_.size() * pass.sample_count;
    activation_ == Activation::kRelu ? ReluForward(pass.device, count, a.x[0], a.y)
                                     : Relu6Forward(pass.device, count, a.x[0], a.y);
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    if (a.dx[0] == nullptr) return;
    const size_t count = shape_.size() * pass.sample_count;
    activation_ == Activation::kRelu ? ReluBackward(pass.device, count, a.y, a.dy, a.dx[0])
                                     : Relu6Backward(pass.device, count, a.y, a.dy, a.dx[0]);
  }

 private:
  SampleShape shape_;
  Activation activation_;
};

std::unique_ptr<Stage> MakeActivation(StageBuilder&, const Layer& layer) {
  return std::make_unique<ActivationStage>(layer.out, RulesFor(layer.spec.kind).activation);
}

Result<SampleShape> FlattenShape(const std::string&, const LayerSpec&,
                                 std::span<const SampleShape> inputs) {
  return SampleShape{1, 1, static_cast<uint32_t>(inputs[0].size())};
}

uint64_t NoFlops(const Layer&) { return 0; }

class FlattenStage : public Stage {
 public:
  explicit FlattenStage(SampleShape shape) : shape_(shape) {}
  StageTraits traits() const override { return {}; }
  void Forward(const Pass& pass, const StageForward& a) const override {
    FlattenForward(pass.device, pass.sample_count, shape_, a.x[0], a.y);
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    if (a.dx[0] == nullptr) return;
    FlattenBackward(pass.device, pass.sample_count, shape_, a.dy, a.dx[0]);
  }

 private:
  SampleShape shape_;
};

std::unique_ptr<Stage> MakeFlatten(StageBuilder&, const Layer& layer) {
  return std::make_unique<FlattenStage>(layer.in);
}

}  // namespace

const LayerRules kReluRules{
    .name = "ReLU", .activation = Activation::kRelu, .make_stage = MakeActivation};
const LayerRules kRelu6Rules{
    .name = "ReLU6", .activation = Activation::kRelu6, .make_stage = MakeActivation};
const LayerRules kAddRules{
    .name = "Add", .input_count = 2, .output_shape = AddShape, .make_stage = MakeAdd};
const LayerRules kFlattenRules{.name = "Flatten",
                               .output_shape = FlattenShape,
                               .forward_flops = NoFlops,
                               .make_stage = MakeFlatten};

}  // namespace pando
