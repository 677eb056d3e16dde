#include "models/stage.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/check.h"
#include "models/model_cost.h"
#include "models/stage_kinds.h"

namespace pando {
namespace {

std::optional<Activation> ActivationOf(LayerKind kind) {
  if (kind == LayerKind::kRelu) return Activation::kRelu;
  if (kind == LayerKind::kRelu6) return Activation::kRelu6;
  return std::nullopt;
}

bool IsPairPool(const LayerSpec& spec) {
  return spec.kind == LayerKind::kMaxPool2d && spec.window == 2 && spec.stride == 2 &&
         spec.padding == 0;
}

Pool2dSpec PoolSpec(const Layer& layer) {
  return {.input = layer.in,
          .window = layer.spec.window,
          .stride = layer.spec.stride,
          .padding = layer.spec.padding};
}

// Each stage is a run of layers. A layer joins the one before it where one operation does both and
// nobody else reads what passes between them.
class Planner {
 public:
  Planner(const Graph& graph, Device device)
      : graph_(graph), device_(device), reader_counts_(graph.layers().size()) {
    for (const Layer& layer : layers()) {
      for (int input : layer.inputs) {
        if (input != kGraphInput) ++reader_counts_[input];
      }
    }
  }

  std::vector<StagePlan> Plan() {
    std::vector<int> stage_of_layer;
    while (next_ < layers().size()) {
      const size_t first = next_++;
      StagePlan plan;
      for (int input : layers()[first].inputs) {
        plan.inputs.push_back(input == kGraphInput ? kGraphInput : stage_of_layer[input]);
      }
      residual_.reset();
      plan.stage = MakeStage(layers()[first]);
      if (residual_) {
        plan.inputs.push_back(*residual_ == kGraphInput ? kGraphInput : stage_of_layer[*residual_]);
      }
      plan.out = layers()[next_ - 1].out;
      plan.tensors = {layers()[first].first_tensor, layers()[first].last_tensor};
      plan.parameters = ParametersOf(plan.tensors);
      plan.layers = NamesOf(first);
      for (size_t i = first; i < next_; ++i) plan.forward_flops += ForwardFlops(layers()[i]);
      stage_of_layer.resize(next_, static_cast<int>(plans_.size()));
      plans_.push_back(std::move(plan));
    }
    return std::move(plans_);
  }

 private:
  const std::vector<Layer>& layers() const { return graph_.layers(); }

  // Of the layers from `first` to the next that is in no stage.
  std::string NamesOf(size_t first) const {
    std::string names = layers()[first].spec.name;
    for (size_t i = first + 1; i < next_; ++i) names += " " + layers()[i].spec.name;
    return names;
  }

  // Statistics come after parameters.
  Network::TensorRun ParametersOf(Network::TensorRun run) const {
    const std::vector<TensorSpec>& specs = graph_.layout().specs();
    while (run.last > run.first && specs[run.last - 1].kind == TensorKind::kStatistic) --run.last;
    return run;
  }

  size_t Offset(const Layer& layer, size_t tensor) const {
    return graph_.layout().offset(layer.first_tensor + tensor);
  }
  WeightAndBias Offsets(const Layer& layer) const {
    WeightAndBias at{.weight = Offset(layer, 0), .has_bias = layer.spec.bias};
    if (at.has_bias) at.bias = Offset(layer, 1);
    return at;
  }

  // The layer that may join: it reads the one before and is its only reader. Null: none.
  const Layer* Joiner() const {
    if (next_ == layers().size() || reader_counts_[next_ - 1] != 1) return nullptr;
    const Layer& next = layers()[next_];
    const auto before = static_cast<int>(next_ - 1);
    return std::ranges::count(next.inputs, before) == 1 ? &next : nullptr;
  }

  Activation JoinActivation() {
    const Layer* next = Joiner();
    const auto activation = next == nullptr ? std::nullopt : ActivationOf(next->spec.kind);
    if (activation) ++next_;
    return activation.value_or(Activation::kNone);
  }

  std::unique_ptr<Stage> MakeStage(const Layer& layer) {
    switch (layer.spec.kind) {
      case LayerKind::kConv2d:
        return MakeConv(layer);
      case LayerKind::kLinear:
        return MakeLinear(layer);
      case LayerKind::kBatchNorm:
        return MakeBatchNorm(layer);
      case LayerKind::kAdd:
        return MakeAddStage(layer.out, JoinActivation());
      case LayerKind::kRelu:
      case LayerKind::kRelu6:
        return MakeActivationStage(layer.out, *ActivationOf(layer.spec.kind));
      case LayerKind::kMaxPool2d:
        return MakeMaxPoolStage(PoolSpec(layer));
      case LayerKind::kAveragePool2d:
        return MakeAveragePoolStage(PoolSpec(layer));
      case LayerKind::kGlobalAveragePool:
        return MakeGlobalAveragePoolStage(layer.in);
      case LayerKind::kAdaptiveAveragePool:
        return MakeAdaptiveAveragePoolStage(
            {.input = layer.in, .out_height = layer.out.height, .out_width = layer.out.width});
      case LayerKind::kDropout:
      case LayerKind::kDropout2d:
        return MakeDropoutStage(layer.spec, layer.in);
      case LayerKind::kFlatten:
        return MakeFlattenStage(layer.in);
    }
    PANDO_CHECK(false);
  }

  // Takes in the layers that follow while the operation can do them too, each at most once.
  std::unique_ptr<Stage> MakeConv(const Layer& layer) {
    Conv2dSpec spec{.input = layer.in,
                    .out_channels = layer.spec.out_units,
                    .kernel = layer.spec.window,
                    .stride = layer.spec.stride,
                    .padding = layer.spec.padding,
                    .groups = layer.spec.groups};
    const LayerSpec* dropout2d = nullptr;
    for (const Layer* next = Joiner(); next != nullptr; next = Joiner()) {
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
      ++next_;
    }
    return MakeConvStage(spec, Offsets(layer), device_, dropout2d);
  }

  std::unique_ptr<Stage> MakeLinear(const Layer& layer) {
    LinearSpec spec{.in_features = layer.in.channels, .out_features = layer.out.channels};
    const Layer* next = Joiner();
    if (next != nullptr && next->spec.kind == LayerKind::kRelu) {
      spec.relu = true;
      ++next_;
    }
    return MakeLinearStage(spec, Offsets(layer), device_);
  }

  std::unique_ptr<Stage> MakeBatchNorm(const Layer& layer) {
    const auto norm = static_cast<int>(next_ - 1);
    if (const Layer* next = Joiner(); next != nullptr && next->spec.kind == LayerKind::kAdd) {
      residual_ = next->inputs[next->inputs[0] == norm ? 1 : 0];
      ++next_;
    }
    const BatchNormSpec spec{
        .shape = layer.out, .eps = layer.spec.eps, .activation = JoinActivation()};
    const BatchNormTensors at{.weight = Offset(layer, 0),
                              .bias = Offset(layer, 1),
                              .mean = Offset(layer, 2),
                              .variance = Offset(layer, 3)};
    return MakeBatchNormStage(spec, at, device_, residual_.has_value());
  }

  const Graph& graph_;
  Device device_;
  std::vector<int> reader_counts_;  // of each layer's output
  std::vector<StagePlan> plans_;
  size_t next_ = 0;              // layer not yet in a stage
  std::optional<int> residual_;  // layer that the stage being made reads besides its first's inputs
};

}  // namespace

std::vector<StagePlan> PlanStages(const Graph& graph, Device device) {
  return Planner(graph, device).Plan();
}

}  // namespace pando
