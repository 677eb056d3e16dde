#include "models/stage_kinds.h"

#include <optional>
#include <string>

#include "common/check.h"

namespace pando {
namespace {

float* Floats(std::byte* bytes) { return reinterpret_cast<float*>(bytes); }
const float* Floats(const std::byte* bytes) { return reinterpret_cast<const float*>(bytes); }
// With slack, in whole lines.
size_t FloatBytes(size_t count) {
  constexpr size_t kLineFloats = 16;
  return (count + kSlackElements + kLineFloats - 1) / kLineFloats * kLineFloats * sizeof(float);
}

// A dropout layer's factors; there are none in evaluation.
class Dropout {
 public:
  Dropout(const LayerSpec& spec, size_t floats_per_sample)
      : name_(spec.name), probability_(spec.probability), floats_per_sample_(floats_per_sample) {}

  bool IsActive(const Pass& pass) const { return pass.mode == Mode::kTrain && probability_ > 0.0f; }
  void Draw(const Pass& pass, float* factors) const {
    if (!IsActive(pass)) return;
    DropoutFactors(pass.device, MakePhiloxKey(pass.seed, RandomPurpose::kDropout, name_),
                   pass.numbers, probability_, floats_per_sample_ * pass.sample_count, factors);
  }
  size_t bytes(uint32_t sample_count) const {
    return FloatBytes(floats_per_sample_ * sample_count);
  }

 private:
  std::string name_;
  float probability_;
  size_t floats_per_sample_;
};

class ConvStage : public Stage {
 public:
  ConvStage(const Conv2dSpec& spec, const WeightAndBias& at, Device device,
            const LayerSpec* dropout2d)
      : spec_(spec), at_(at), device_(device) {
    spec_.has_channel_scale = dropout2d != nullptr;
    if (dropout2d != nullptr) dropout_.emplace(*dropout2d, spec.out_channels);
  }
  StageTraits traits() const override {
    return {.reads_input = true, .reads_output = spec_.relu || spec_.max_pool};
  }
  void Forward(const Pass& pass, const StageForward& a) const override {
    if (dropout_) dropout_->Draw(pass, Floats(a.kept));
    Conv2dForward(pass.device, spec_,
                  {.sample_count = pass.sample_count,
                   .x = a.x[0],
                   .weight = a.parameters + at_.weight,
                   .bias = at_.has_bias ? a.parameters + at_.bias : nullptr,
                   .channel_scale = IsDropping(pass) ? Floats(a.kept) : nullptr,
                   .y = a.y,
                   .argmax = spec_.max_pool ? Argmax(pass, a.kept) : nullptr},
                  a.scratch);
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    Conv2dBackward(pass.device, spec_,
                   {.sample_count = pass.sample_count,
                    .x = a.x,
                    .weight = a.parameters + at_.weight,
                    .channel_scale = IsDropping(pass) ? Floats(a.kept) : nullptr,
                    .y = a.y,
                    .argmax = spec_.max_pool ? Argmax(pass, a.kept) : nullptr,
                    .dy = a.dy,
                    .dx = a.dx[0],
                    .dweight = a.gradients + at_.weight,
                    .dbias = at_.has_bias ? a.gradients + at_.bias : nullptr},
                   a.scratch);
  }
  // Dropout's factors, then where the maxima lay.
  size_t kept_bytes(uint32_t sample_count) const override {
    const size_t argmax_bytes =
        spec_.max_pool ? FloatBytes(spec_.output().size() * sample_count) : 0;
    return FactorBytes(sample_count) + argmax_bytes;
  }
  size_t scratch_bytes(uint32_t sample_count) const override {
    return Conv2dScratchBytes(device_, spec_, sample_count);
  }

 private:
  bool IsDropping(const Pass& pass) const { return dropout_ && dropout_->IsActive(pass); }
  size_t FactorBytes(uint32_t sample_count) const {
    return dropout_ ? dropout_->bytes(sample_count) : 0;
  }
  int32_t* Argmax(const Pass& pass, std::byte* kept) const {
    return reinterpret_cast<int32_t*>(kept + FactorBytes(pass.sample_count));
  }
  const int32_t* Argmax(const Pass& pass, const std::byte* kept) const {
    return reinterpret_cast<const int32_t*>(kept + FactorBytes(pass.sample_count));
  }

  Conv2dSpec spec_;
  WeightAndBias at_;
  Device device_;
  std::optional<Dropout> dropout_;
};

class LinearStage : public Stage {
 public:
  LinearStage(const LinearSpec& spec, const WeightAndBias& at, Device device)
      : spec_(spec), at_(at), device_(device) {}
  StageTraits traits() const override { return {.reads_input = true, .reads_output = spec_.relu}; }
  void Forward(const Pass& pass, const StageForward& a) const override {
    LinearForward(pass.device, spec_,
                  {.sample_count = pass.sample_count,
                   .x = a.x[0],
                   .weight = a.parameters + at_.weight,
                   .bias = at_.has_bias ? a.parameters + at_.bias : nullptr,
                   .y = a.y},
                  a.scratch);
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    LinearBackward(pass.device, spec_,
                   {.sample_count = pass.sample_count,
                    .x = a.x,
                    .weight = a.parameters + at_.weight,
                    .y = a.y,
                    .dy = a.dy,
                    .dx = a.dx[0],
                    .dweight = a.gradients + at_.weight,
                    .dbias = at_.has_bias ? a.gradients + at_.bias : nullptr},
                   a.scratch);
  }
  size_t scratch_bytes(uint32_t sample_count) const override {
    return LinearScratchBytes(device_, spec_, sample_count);
  }

 private:
  LinearSpec spec_;
  WeightAndBias at_;
  Device device_;
};

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
  // The tree's root is divided by the step's samples: what is left is the mean over micro-batches,
  // each weighted by its samples.
  void PushStatistic(const Pass& pass, const float* statistic, float* out) const {
    ScaleFloats(pass.device, spec_.shape.channels, statistic, static_cast<float>(pass.sample_count),
                out);
  }

  BatchNormSpec spec_;
  BatchNormTensors at_;
  Device device_;
  bool has_residual_;
};

class AddStage : public Stage {
 public:
  AddStage(SampleShape shape, Activation activation) : shape_(shape), activation_(activation) {}
  StageTraits traits() const override {
    return {.reads_output = activation_ != Activation::kNone, .may_be_dy = {true, true}};
  }
  void Forward(const Pass& pass, const StageForward& a) const override {
    AddForward(pass.device, shape_.size() * pass.sample_count, a.x[0], a.x[1], activation_, a.y);
  }
  // What takes the place of dy comes last.
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
  Dropout dropout_;
};

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

class AveragePoolStage : public Stage {
 public:
  explicit AveragePoolStage(const Pool2dSpec& spec) : spec_(spec) {}
  StageTraits traits() const override { return {}; }
  void Forward(const Pass& pass, const StageForward& a) const override {
    AveragePoolForward(pass.device, spec_, pass.sample_count, a.x[0], a.y);
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    if (a.dx[0] == nullptr) return;
    AveragePoolBackward(pass.device, spec_, pass.sample_count, a.dy, a.dx[0]);
  }

 private:
  Pool2dSpec spec_;
};

class AdaptiveAveragePoolStage : public Stage {
 public:
  explicit AdaptiveAveragePoolStage(const AdaptivePool2dSpec& spec) : spec_(spec) {}
  StageTraits traits() const override { return {}; }
  void Forward(const Pass& pass, const StageForward& a) const override {
    AdaptiveAveragePoolForward(pass.device, spec_, pass.sample_count, a.x[0], a.y);
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    if (a.dx[0] == nullptr) return;
    AdaptiveAveragePoolBackward(pass.device, spec_, pass.sample_count, a.dy, a.dx[0]);
  }

 private:
  AdaptivePool2dSpec spec_;
};

class GlobalAveragePoolStage : public Stage {
 public:
  explicit GlobalAveragePoolStage(SampleShape shape) : shape_(shape) {}
  StageTraits traits() const override { return {}; }
  void Forward(const Pass& pass, const StageForward& a) const override {
    GlobalAveragePoolForward(pass.device, pass.sample_count, shape_, a.x[0], a.y);
  }
  void Backward(const Pass& pass, const StageBackward& a) const override {
    if (a.dx[0] == nullptr) return;
    GlobalAveragePoolBackward(pass.device, pass.sample_count, shape_, a.dy, a.dx[0]);
  }

 private:
  SampleShape shape_;
};

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

}  // namespace

std::unique_ptr<Stage> MakeConvStage(const Conv2dSpec& spec, const WeightAndBias& at, Device device,
                                     const LayerSpec* dropout2d) {
  return std::make_unique<ConvStage>(spec, at, device, dropout2d);
}
std::unique_ptr<Stage> MakeLinearStage(const LinearSpec& spec, const WeightAndBias& at,
                                       Device device) {
  return std::make_unique<LinearStage>(spec, at, device);
}
std::unique_ptr<Stage> MakeBatchNormStage(const BatchNormSpec& spec, const BatchNormTensors& at,
                                          Device device, bool has_residual) {
  return std::make_unique<BatchNormStage>(spec, at, device, has_residual);
}
std::unique_ptr<Stage> MakeAddStage(SampleShape shape, Activation activation) {
  return std::make_unique<AddStage>(shape, activation);
}
std::unique_ptr<Stage> MakeActivationStage(SampleShape shape, Activation activation) {
  PANDO_CHECK(activation != Activation::kNone);
  return std::make_unique<ActivationStage>(shape, activation);
}
std::unique_ptr<Stage> MakeDropoutStage(const LayerSpec& spec, SampleShape shape) {
  return std::make_unique<DropoutStage>(spec, shape);
}
std::unique_ptr<Stage> MakeMaxPoolStage(const Pool2dSpec& spec) {
  return std::make_unique<MaxPoolStage>(spec);
}
std::unique_ptr<Stage> MakeAveragePoolStage(const Pool2dSpec& spec) {
  return std::make_unique<AveragePoolStage>(spec);
}
std::unique_ptr<Stage> MakeAdaptiveAveragePoolStage(const AdaptivePool2dSpec& spec) {
  return std::make_unique<AdaptiveAveragePoolStage>(spec);
}
std::unique_ptr<Stage> MakeGlobalAveragePoolStage(SampleShape shape) {
  return std::make_unique<GlobalAveragePoolStage>(shape);
}
std::unique_ptr<Stage> MakeFlattenStage(SampleShape shape) {
  return std::make_unique<FlattenStage>(shape);
}

}  // namespace pando
