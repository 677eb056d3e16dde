#include "models/stage.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/check.h"
#include "common/float_buffer.h"

namespace pando {
namespace {

// Where a layer's weight and bias lie in the flat vector.
struct WeightAndBias {
  size_t weight = 0;
  size_t bias = 0;
};

// Keeps the dropout factors of the micro-batch at hand; none in evaluation.
class DropoutState {
 public:
  DropoutState(const LayerSpec& spec, size_t floats_per_sample, uint32_t sample_count_max)
      : name_(spec.name),
        probability_(spec.probability),
        floats_per_sample_(floats_per_sample),
        factors_(floats_per_sample * sample_count_max + kSlackFloats) {}

  void Draw(const Pass& pass) {
    is_active_ = pass.mode == Mode::kTrain && probability_ > 0.0f;
    if (!is_active_) return;
    const DropoutStream stream{.key = MakePhiloxKey(pass.name.seed, RandomPurpose::kDropout, name_),
                               .step = pass.name.step.value(),
                               .micro_batch = pass.name.micro_batch.value()};
    DropoutFactors(pass.device, stream, probability_, floats_per_sample_ * pass.sample_count,
                   factors_.data());
  }
  const float* factors() const { return is_active_ ? factors_.data() : nullptr; }

 private:
  std::string name_;
  float probability_;
  size_t floats_per_sample_;
  FloatBuffer factors_;
  bool is_active_ = false;
};

// A convolution with the dropout2d, 2x2 max pool and relu that follow it.
class ConvStage : public Stage {
 public:
  ConvStage(const Conv2dSpec& spec, WeightAndBias at, Device device, const LayerSpec* dropout2d,
            uint32_t sample_count_max)
      : spec_(spec), at_(at), scratch_bytes_(Conv2dScratchBytes(device, spec, sample_count_max)) {
    if (spec.max_pool) argmax_.resize(spec.output().size() * sample_count_max + kSlackFloats);
    if (dropout2d != nullptr)
      dropout_.emplace_back(*dropout2d, spec.out_channels, sample_count_max);
  }
  void Forward(const Pass& pass, const StageForward& a) override {
    for (DropoutState& dropout : dropout_) dropout.Draw(pass);
    Conv2dForward(pass.device, spec_,
                  {.sample_count = pass.sample_count,
                   .x = a.x,
                   .weight = a.parameters + at_.weight,
                   .bias = a.parameters + at_.bias,
                   .channel_scale = channel_scale(),
                   .y = a.y,
                   .argmax = argmax_.data()},
                  pass.scratch);
  }
  void Backward(const Pass& pass, const StageBackward& a) override {
    Conv2dBackward(pass.device, spec_,
                   {.sample_count = pass.sample_count,
                    .x = a.x,
                    .weight = a.parameters + at_.weight,
                    .channel_scale = channel_scale(),
                    .y = a.y,
                    .argmax = argmax_.data(),
                    .dy = a.dy,
                    .dx = a.dx,
                    .dweight = a.gradients + at_.weight,
                    .dbias = a.gradients + at_.bias},
                   pass.scratch);
  }
  size_t scratch_bytes() const override { return scratch_bytes_; }

 private:
  const float* channel_scale() const {
    return dropout_.empty() ? nullptr : dropout_.front().factors();
  }
  Conv2dSpec spec_;
  WeightAndBias at_;
  size_t scratch_bytes_;
  std::vector<int32_t> argmax_;
  std::vector<DropoutState> dropout_;  // none or one
};

// A linear layer with the relu that follows it.
class LinearStage : public Stage {
 public:
  LinearStage(const LinearSpec& spec, WeightAndBias at, Device device, uint32_t sample_count_max)
      : spec_(spec), at_(at), scratch_bytes_(LinearScratchBytes(device, spec, sample_count_max)) {}
  void Forward(const Pass& pass, const StageForward& a) override {
    LinearForward(pass.device, spec_,
                  {.sample_count = pass.sample_count,
                   .x = a.x,
                   .weight = a.parameters + at_.weight,
                   .bias = a.parameters + at_.bias,
                   .y = a.y},
                  pass.scratch);
  }
  void Backward(const Pass& pass, const StageBackward& a) override {
    LinearBackward(pass.device, spec_,
                   {.sample_count = pass.sample_count,
                    .x = a.x,
                    .weight = a.parameters + at_.weight,
                    .y = a.y,
                    .dy = a.dy,
                    .dx = a.dx,
                    .dweight = a.gradients + at_.weight,
                    .dbias = a.gradients + at_.bias},
                   pass.scratch);
  }
  size_t scratch_bytes() const override { return scratch_bytes_; }

 private:
  LinearSpec spec_;
  WeightAndBias at_;
  size_t scratch_bytes_;
};

class ReluStage : public Stage {
 public:
  explicit ReluStage(SampleShape shape) : shape_(shape) {}
  void Forward(const Pass& pass, const StageForward& a) override {
    ReluForward(pass.device, shape_.size() * pass.sample_count, a.x, a.y);
  }
  void Backward(const Pass& pass, const StageBackward& a) override {
    if (a.dx == nullptr) return;
    ReluBackward(pass.device, shape_.size() * pass.sample_count, a.y, a.dy, a.dx);
  }

 private:
  SampleShape shape_;
};

class DropoutStage : public Stage {
 public:
  DropoutStage(const Layer& layer, uint32_t sample_count_max)
      : shape_(layer.in),
        per_channel_(layer.spec.kind == LayerKind::kDropout2d),
        dropout_(layer.spec, per_channel_ ? shape_.channels : shape_.size(), sample_count_max) {}
  void Forward(const Pass& pass, const StageForward& a) override {
    dropout_.Draw(pass);
    Scale(pass, a.x, a.y);
  }
  void Backward(const Pass& pass, const StageBackward& a) override {
    if (a.dx != nullptr) Scale(pass, a.dy, a.dx);
  }

 private:
  void Scale(const Pass& pass, const float* x, float* y) {
    const float* factors = dropout_.factors();
    const size_t count = shape_.size() * pass.sample_count;
    if (factors == nullptr) {
      std::copy_n(x, count, y);
    } else if (per_channel_) {
      MultiplyChannels(pass.device, pass.sample_count, shape_, x, factors, y);
    } else {
      Multiply(pass.device, count, x, factors, y);
    }
  }
  SampleShape shape_;
  bool per_channel_;
  DropoutState dropout_;
};

class MaxPoolStage : public Stage {
 public:
  MaxPoolStage(const Pool2dSpec& spec, uint32_t sample_count_max)
      : spec_(spec), argmax_(spec.output().size() * sample_count_max) {}
  void Forward(const Pass& pass, const StageForward& a) override {
    MaxPoolForward(pass.device, spec_, pass.sample_count, a.x, a.y, argmax_.data());
  }
  void Backward(const Pass& pass, const StageBackward& a) override {
    if (a.dx == nullptr) return;
    MaxPoolBackward(pass.device, spec_, pass.sample_count, argmax_.data(), a.dy, a.dx);
  }

 private:
  Pool2dSpec spec_;
  std::vector<int32_t> argmax_;
};

class AveragePoolStage : public Stage {
 public:
  explicit AveragePoolStage(const Pool2dSpec& spec) : spec_(spec) {}
  void Forward(const Pass& pass, const StageForward& a) override {
    AveragePoolForward(pass.device, spec_, pass.sample_count, a.x, a.y);
  }
  void Backward(const Pass& pass, const StageBackward& a) override {
    if (a.dx != nullptr) AveragePoolBackward(pass.device, spec_, pass.sample_count, a.dy, a.dx);
  }

 private:
  Pool2dSpec spec_;
};

class FlattenStage : public Stage {
 public:
  explicit FlattenStage(SampleShape shape) : shape_(shape) {}
  void Forward(const Pass& pass, const StageForward& a) override {
    FlattenForward(pass.device, pass.sample_count, shape_, a.x, a.y);
  }
  void Backward(const Pass& pass, const StageBackward& a) override {
    if (a.dx != nullptr) FlattenBackward(pass.device, pass.sample_count, shape_, a.dy, a.dx);
  }

 private:
  SampleShape shape_;
};

// ------------------------------------------------------------------------------------- planning

bool IsPairPool(const LayerSpec& spec) {
  return spec.kind == LayerKind::kMaxPool2d && spec.window == 2 && spec.stride == 2;
}

class Planner {
 public:
  Planner(const Graph& graph, Device device, uint32_t sample_count_max)
      : graph_(graph), device_(device), sample_count_max_(sample_count_max) {}

  std::vector<StagePlan> Plan() {
    std::vector<StagePlan> plans;
    while (next_ < layers().size()) {
      const Layer& first = layers()[next_++];
      std::unique_ptr<Stage> stage = MakeStage(first);
      plans.push_back({.stage = std::move(stage),
                       .in = first.in,
                       .out = layers()[next_ - 1].out,
                       .tensors = {first.first_tensor, first.last_tensor}});
    }
    return plans;
  }

 private:
  const std::vector<Layer>& layers() const { return graph_.layers(); }

  WeightAndBias Offsets(const Layer& layer) const {
    return {graph_.layout().offset(layer.first_tensor),
            graph_.layout().offset(layer.first_tensor + 1)};
  }

  std::unique_ptr<Stage> MakeStage(const Layer& layer) {
    const Pool2dSpec pool{layer.in, layer.spec.window, layer.spec.stride};
    switch (layer.spec.kind) {
      case LayerKind::kConv2d:
        return MakeConvStage(layer);
      case LayerKind::kLinear:
        return MakeLinearStage(layer);
      case LayerKind::kRelu:
        return std::make_unique<ReluStage>(layer.in);
      case LayerKind::kMaxPool2d:
        return std::make_unique<MaxPoolStage>(pool, sample_count_max_);
      case LayerKind::kAveragePool2d:
        return std::make_unique<AveragePoolStage>(pool);
      case LayerKind::kDropout:
      case LayerKind::kDropout2d:
        return std::make_unique<DropoutStage>(layer, sample_count_max_);
      case LayerKind::kFlatten:
        return std::make_unique<FlattenStage>(layer.in);
      default:
        break;
    }
    PANDO_CHECK(false);
  }

  // Takes in the layers that follow while the operation can do them too, each at most once.
  std::unique_ptr<Stage> MakeConvStage(const Layer& layer) {
    Conv2dSpec spec{.input = layer.in,
                    .out_channels = layer.spec.out_units,
                    .kernel = layer.spec.window,
                    .stride = layer.spec.stride,
                    .padding = layer.spec.padding};
    const LayerSpec* dropout2d = nullptr;
    for (; next_ < layers().size(); ++next_) {
      const LayerSpec& next = layers()[next_].spec;
      if (next.kind == LayerKind::kRelu && !spec.relu) {
        spec.relu = true;
      } else if (IsPairPool(next) && !spec.max_pool) {
        spec.max_pool = true;
      } else if (next.kind == LayerKind::kDropout2d && dropout2d == nullptr) {
        dropout2d = &next;
      } else {
        break;
      }
    }
    return std::make_unique<ConvStage>(spec, Offsets(layer), device_, dropout2d, sample_count_max_);
  }

  std::unique_ptr<Stage> MakeLinearStage(const Layer& layer) {
    LinearSpec spec{.in_features = layer.in.channels, .out_features = layer.out.channels};
    if (next_ < layers().size() && layers()[next_].spec.kind == LayerKind::kRelu) {
      spec.relu = true;
      ++next_;
    }
    return std::make_unique<LinearStage>(spec, Offsets(layer), device_, sample_count_max_);
  }

  const Graph& graph_;
  Device device_;
  uint32_t sample_count_max_;
  size_t next_ = 0;  // layer not yet in a stage
};

// What keeps a layer from being computed; empty: nothing.
std::string NotComputable(const Layer& layer, int index) {
  const LayerSpec& spec = layer.spec;
  const bool has_weights = spec.kind == LayerKind::kConv2d || spec.kind == LayerKind::kLinear;
  if (layer.inputs != std::vector<int>{index - 1})
    return "that reads another than the layer before";
  if (has_weights && spec.groups != 1) return "with groups";
  if (has_weights && !spec.bias) return "without bias";
  if (spec.kind == LayerKind::kMaxPool2d && spec.padding != 0) return "with padding";
  switch (spec.kind) {
    case LayerKind::kBatchNorm:
    case LayerKind::kRelu6:
    case LayerKind::kAdd:
    case LayerKind::kGlobalAveragePool:
    case LayerKind::kAdaptiveAveragePool:
      return "at all";
    default:
      return "";
  }
}

}  // namespace

Status CheckComputable(const std::string& model, const Graph& graph) {
  for (size_t i = 0; i < graph.layers().size(); ++i) {
    const Layer& layer = graph.layers()[i];
    const std::string reason = NotComputable(layer, static_cast<int>(i));
    if (reason.empty()) continue;
    return InvalidArgument(
        fmt::format("model {}: layer '{}': this version does not compute {} {} yet; choose another "
                    "model",
                    model, layer.spec.name, LayerKindName(layer.spec.kind), reason));
  }
  return Status();
}

std::vector<StagePlan> PlanStages(const Graph& graph, Device device, uint32_t sample_count_max) {
  return Planner(graph, device, sample_count_max).Plan();
}

}  // namespace pando
