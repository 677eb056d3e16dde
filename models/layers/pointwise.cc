// Layers that compute each element separately: activations, addition, dropout (of single elements
// and of whole channels); and flattening, which moves them.
#include <fmt/core.h>

#include "models/layers/dropout_mask.h"

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
  // The gradient that reuses dy's memory is written last.
  void Backward(const Pass& pass, const StageBackward& a) const override {
    const bool is_first_dy = a.dx[0] == a.dy;
    PassOn(pass, a, a.dx[is_first_dy ? 1 : 0]);
    PassOn(pass, a, a.dx[is_first_dy ? 0 : 1]);
  }

 private:
  void PassOn(const Pass& pass, const StageBackward& a, void* dx) const {
    if (dx == nullptr || (dx == a.dy && activation_ == Activation::kNone)) return;
    ActivationBackward(pass.device, shape_.size() * pass.sample_count, a.y, activation_, a.dy, dx);
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
    ActivationForward(pass.device, shape_.size() * pass.sample_count, a.x[0], activation_, a.y);
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    if (a.dx[0] == nullptr) return;
    ActivationBackward(pass.device, shape_.size() * pass.sample_count, a.y, activation_, a.dy,
                       a.dx[0]);
  }

 private:
  SampleShape shape_;
  Activation activation_;
};

std::unique_ptr<Stage> MakeActivation(StageBuilder&, const Layer& layer) {
  return std::make_unique<ActivationStage>(layer.out, RulesFor(layer.spec.kind).activation);
}

constexpr LayerKey kDropoutKeys[] = {{"p", &LayerSpec::probability}};

class DropoutStage : public Stage {
 public:
  DropoutStage(const LayerSpec& spec, SampleShape shape)
      : shape_(shape),
        per_channel_(spec.kind == LayerKind::kDropout2d),
        dropout_(spec, per_channel_ ? shape.channels : shape.size()) {}
  StageTraits traits() const override { return {}; }
  void Forward(const Pass& pass, const StageForward& a) const override {
    dropout_.Draw(pass, Floats(a.kept));
    Scale(pass, a.x[0], Floats(a.kept), a.y);
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    if (a.dx[0] != nullptr) Scale(pass, a.dy, Floats(a.kept), a.dx[0]);
  }
  size_t kept_bytes(uint32_t sample_count) const override { return dropout_.bytes(sample_count); }

 private:
  void Scale(const Pass& pass, const void* x, const float* factors, void* y) const {
    const size_t count = shape_.size() * pass.sample_count;
    if (!dropout_.IsActive(pass)) {
      Copy(pass.device, count, x, y);
    } else if (per_channel_) {
      MultiplyChannels(pass.device, pass.sample_count, shape_, x, factors, y);
    } else {
      Multiply(pass.device, count, x, factors, y);
    }
  }
  SampleShape shape_;
  bool per_channel_;
  DropoutMask dropout_;
};

std::unique_ptr<Stage> MakeDropout(StageBuilder&, const Layer& layer) {
  return std::make_unique<DropoutStage>(layer.spec, layer.in);
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
    TransposeSamples(pass.device, pass.sample_count, pixels(), shape_.channels, a.x[0], a.y);
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    if (a.dx[0] == nullptr) return;
    TransposeSamples(pass.device, pass.sample_count, shape_.channels, pixels(), a.dy, a.dx[0]);
  }

 private:
  uint32_t pixels() const { return shape_.height * shape_.width; }

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
const LayerRules kDropoutRules{
    .name = "Dropout", .keys = kDropoutKeys, .file_probability = 0.5f, .make_stage = MakeDropout};
const LayerRules kDropout2dRules{
    .name = "Dropout2d", .keys = kDropoutKeys, .file_probability = 0.5f, .make_stage = MakeDropout};
const LayerRules kFlattenRules{.name = "Flatten",
                               .output_shape = FlattenShape,
                               .forward_flops = NoFlops,
                               .make_stage = MakeFlatten};

}  // namespace pando
