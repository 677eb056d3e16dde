#include "models/stage_builder.h"

#include <algorithm>

namespace pando {

StageBuilder::StageBuilder(const Graph& graph)
    : graph_(graph), reader_counts_(graph.layers().size()) {
  for (const Layer& layer : layers()) {
    for (int input : layer.inputs) {
      if (input != kGraphInput) ++reader_counts_[input];
    }
  }
}

std::vector<StagePlan> StageBuilder::Build() {
  std::vector<StagePlan> plans;
  while (next_ < layers().size()) {
    plans.push_back(BuildNext());
    stage_of_layer_.resize(next_, static_cast<int>(plans.size() - 1));
  }
  return plans;
}

StagePlan StageBuilder::BuildNext() {
  const size_t first = next_++;
  const Layer& layer = layers()[first];
  StagePlan plan;
  for (int input : layer.inputs) plan.inputs.push_back(StageFor(input));
  residual_.reset();
  plan.stage = RulesFor(layer.spec.kind).make_stage(*this, layer);
  if (residual_) plan.inputs.push_back(StageFor(*residual_));
  plan.out = layers()[next_ - 1].out;
  plan.tensors = {layer.first_tensor, layer.last_tensor};
  plan.parameters = plan.tensors;
  const std::vector<TensorSpec>& tensors = graph_.layout().specs();
  size_t& last = plan.parameters.last;  // statistics come after parameters
  while (last > layer.first_tensor && tensors[last - 1].kind == TensorKind::kStatistic) --last;
  if (last > layer.first_tensor) {
    plan.parameter_floats = {graph_.layout().offset(layer.first_tensor),
                             graph_.layout().offset(last)};
  }
  for (size_t i = first; i < next_; ++i) {
    plan.layers += (i > first ? " " : "") + layers()[i].spec.name;
    plan.forward_flops += ForwardFlops(layers()[i]);
  }
  return plan;
}

int StageBuilder::StageFor(int layer) const {
  return layer == kGraphInput ? kGraphInput : stage_of_layer_[layer];
}

TensorPlaces StageBuilder::FindTensors(const Layer& layer) const {
  TensorPlaces at;
  size_t* const places[] = {&at.weight, &at.bias, &at.mean, &at.variance};
  const size_t count = layer.last_tensor - layer.first_tensor;
  for (size_t i = 0; i < count; ++i) *places[i] = graph_.layout().offset(layer.first_tensor + i);
  at.has_bias = count > 1;
  return at;
}

const Layer* StageBuilder::Joiner() const {
  if (next_ == layers().size() || reader_counts_[next_ - 1] != 1) return nullptr;
  const Layer& next = layers()[next_];
  const auto before = static_cast<int>(next_ - 1);
  return std::ranges::count(next.inputs, before) == 1 ? &next : nullptr;
}

Activation StageBuilder::JoinActivation() {
  const Layer* next = Joiner();
  const Activation activation =
      next == nullptr ? Activation::kNone : RulesFor(next->spec.kind).activation;
  if (activation != Activation::kNone) Join();
  return activation;
}

bool StageBuilder::JoinAdd() {
  const Layer* next = Joiner();
  if (next == nullptr || next->spec.kind != LayerKind::kAdd) return false;
  const auto before = static_cast<int>(next_ - 1);
  residual_ = next->inputs[next->inputs[0] == before ? 1 : 0];
  Join();
  return true;
}

std::vector<StagePlan> PlanStages(const Graph& graph) { return StageBuilder(graph).Build(); }

}  // namespace pando
