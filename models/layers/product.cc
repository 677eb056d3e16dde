// Convolution and linear layer: products with a weight, and a bias.
#include <fmt/core.h>

#include <cmath>
#include <optional>

#include "models/layers/dropout_mask.h"

namespace pando {
namespace {

// Count the elements of a weight. FanIn: those that contribute to one output. FanOut, as PyTorch
// counts: those to which one input contributes, not divided by the groups.
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

constexpr auto kUnits = LayerKey::Rule::kUnits;
constexpr LayerKey kBias{"bias", &LayerSpec::bias};
constexpr LayerKey kInit{"init", &LayerSpec::init};
constexpr LayerKey kInitStddev{"init_std", &LayerSpec::init_stddev, LayerKey::Rule::kOfNormalInit};

// ------------------------------------------------------------------------------------ convolution

constexpr LayerKey kConvKeys[] = {
    {"out_channels", &LayerSpec::out_units, kUnits},
    {"kernel_size", &LayerSpec::window, LayerKey::Rule::kRequired, 1, kWindowMax},
    {"stride", &LayerSpec::stride, {}, 1, kWindowMax},
    {"padding", &LayerSpec::padding, {}, 0, kWindowMax},
    {"groups", &LayerSpec::groups, {}, 1, kUnitsMax},
    kBias,
    kInit,
    kInitStddev};

Result<SampleShape> ConvShape(const std::string& model, const LayerSpec& spec,
                              std::span<const SampleShape> inputs) {
  const SampleShape& in = inputs[0];
  if (in.channels % spec.groups != 0 || spec.out_units % spec.groups != 0) {
    return DoesNotFit(model, spec, in,
                      fmt::format("channels that {} groups divide, its {} outputs too", spec.groups,
                                  spec.out_units));
  }
  return SlidingShape(model, spec, in, spec.out_units);
}

uint64_t ConvFlops(const Layer& layer) {
  const LayerSpec& spec = layer.spec;
  const uint64_t outputs = layer.out.size();
  const uint64_t weights_per_output =
      uint64_t{spec.window} * spec.window * (layer.in.channels / spec.groups);
  return 2 * weights_per_output * outputs + (spec.bias ? outputs : 0);
}

// A convolution with the dropout2d (null: none), the 2x2 max pool and the relu after it.
class ConvStage : public Stage {
 public:
  ConvStage(const Conv2dSpec& spec, const TensorPlaces& at, const LayerSpec* dropout2d,
            bool reads_network_input)
      : spec_(spec), at_(at), reads_network_input_(reads_network_input) {
    spec_.has_channel_scale = dropout2d != nullptr;
    if (dropout2d != nullptr) dropout_.emplace(*dropout2d, spec.out_channels);
  }
  StageTraits traits() const override {
    return {.reads_input = true,
            .reads_output = spec_.relu || spec_.max_pool,
            .can_add_dx = true,
            .can_pad_input = spec_.groups == 1};
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
                   .argmax = spec_.max_pool ? Argmax(pass, a.kept) : nullptr,
                   .x_channels = InputChannels(pass)},
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
                    .dbias = at_.has_bias ? a.gradients + at_.bias : nullptr,
                    .adds_dx = a.adds_dx,
                    .x_channels = InputChannels(pass)},
                   a.scratch);
  }
  // Keeps dropout's factors, then the places of the maxima.
  size_t kept_bytes(uint32_t sample_count) const override {
    const size_t argmax_bytes =
        spec_.max_pool ? FloatBytes(spec_.output().size() * sample_count) : 0;
    return FactorBytes(sample_count) + argmax_bytes;
  }
  size_t scratch_bytes(Device device, uint32_t sample_count) const override {
    return Conv2dScratchBytes(device, spec_, sample_count);
  }

 private:
  // Returns the stored channels of the input; 0 means as many as the layer has.
  uint32_t InputChannels(const Pass& pass) const {
    return reads_network_input_ && spec_.groups == 1 ? pass.input_channels : 0;
  }
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
  TensorPlaces at_;
  bool reads_network_input_;
  std::optional<DropoutMask> dropout_;
};

bool IsPairPool(const LayerSpec& spec) {
  return spec.kind == LayerKind::kMaxPool2d && spec.window == 2 && spec.stride == 2 &&
         spec.padding == 0;
}

// Takes in the following layers that the operation can do too, each at most once.
std::unique_ptr<Stage> MakeConv(StageBuilder& builder, const Layer& layer) {
  Conv2dSpec spec{.input = layer.in,
                  .out_channels = layer.spec.out_units,
                  .kernel = layer.spec.window,
                  .stride = layer.spec.stride,
                  .padding = layer.spec.padding,
                  .groups = layer.spec.groups};
  const LayerSpec* dropout2d = nullptr;
  for (const Layer* next = builder.Joiner(); next != nullptr; next = builder.Joiner()) {
    const LayerSpec& joining = next->spec;
    if (joining.kind == LayerKind::kRelu && !spec.relu) {
      spec.relu = true;
    } else if (IsPairPool(joining) && !spec.max_pool) {
      spec.max_pool = true;
    } else if (joining.kind == LayerKind::kDropout2d && dropout2d == nullptr) {
      dropout2d = &joining;
    } else {
      break;
    }
    builder.Join();
  }
  return std::make_unique<ConvStage>(spec, builder.FindTensors(layer), dropout2d,
                                     layer.inputs[0] == kGraphInput);
}

// ----------------------------------------------------------------------------------------- linear

constexpr LayerKey kLinearKeys[] = {
    {"out_features", &LayerSpec::out_units, kUnits}, kBias, kInit, kInitStddev};

Result<SampleShape> LinearShape(const std::string& model, const LayerSpec& spec,
                                std::span<const SampleShape> inputs) {
  const SampleShape& in = inputs[0];
  if (in.height != 1 || in.width != 1) return DoesNotFit(model, spec, in, "1 x 1 x features");
  return SampleShape{1, 1, spec.out_units};
}

uint64_t LinearFlops(const Layer& layer) {
  const uint64_t outputs = layer.out.size();
  return 2 * layer.in.size() * outputs + (layer.spec.bias ? outputs : 0);
}

class LinearStage : public Stage {
 public:
  LinearStage(const LinearSpec& spec, const TensorPlaces& at) : spec_(spec), at_(at) {}
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
  size_t scratch_bytes(Device device, uint32_t sample_count) const override {
    return LinearScratchBytes(device, spec_, sample_count);
  }

 private:
  LinearSpec spec_;
  TensorPlaces at_;
};

std::unique_ptr<Stage> MakeLinear(StageBuilder& builder, const Layer& layer) {
  LinearSpec spec{.in_features = layer.in.channels, .out_features = layer.out.channels};
  const Layer* next = builder.Joiner();
  if (next != nullptr && next->spec.kind == LayerKind::kRelu) {
    spec.relu = true;
    builder.Join();
  }
  return std::make_unique<LinearStage>(spec, builder.FindTensors(layer));
}

}  // namespace

const LayerRules kConv2dRules{.name = "Conv2d",
                              .keys = kConvKeys,
                              .find_fault = FindNoOutput,
                              .output_shape = ConvShape,
                              .append_tensors = AppendWeightAndBias,
                              .forward_flops = ConvFlops,
                              .has_weight_product = true,
                              .make_stage = MakeConv};
const LayerRules kLinearRules{.name = "Linear",
                              .keys = kLinearKeys,
                              .find_fault = FindNoOutput,
                              .output_shape = LinearShape,
                              .append_tensors = AppendWeightAndBias,
                              .forward_flops = LinearFlops,
                              .has_weight_product = true,
                              .make_stage = MakeLinear};

}  // namespace pando
