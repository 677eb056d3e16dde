#include "models/stage_builder.h"

#include <algorithm>
#include <utility>

#include "models/model_cost.h"

namespace pando {

StageBuilder::StageBuilder(const Graph& graph, Device device)
    : graph_(graph), device_(device), reader_counts_(graph.layers().size()) {
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
  plan.parameters = FindParameters(plan.tensors);
  plan.layers = CollectNames(first);
  for (size_t i = first; i < next_; ++i) plan.forward_flops += ForwardFlops(layers()[i]);
  return plan;
}

int StageBuilder::StageFor(int layer) const {
  return layer == kGraphInput ? kGraphInput : stage_of_layer_[layer];
}

// Names of the layers from `first` to the next one that is in no stage.
std::string StageBuilder::CollectNames(size_t first) const {
  std::string names = layers()[first].spec.name;
  for (size_t i = first + 1; i < next_; ++i) names += " " + layers()[i].spec.name;
  return names;
}

// Statistics come after parameters.
Network::TensorRun StageBuilder::FindParameters(Network::TensorRun run) const {
  const std::vector<TensorSpec>& specs = graph_.layout().specs();
  while (run.last > run.first && specs[run.last - 1].kind == TensorKind::kStatistic) --run.last;
  return run;
}

size_t StageBuilder::Offset(const Layer& layer, size_t tensor) const {
  return graph_.layout().offset(layer.first_tensor + tensor);
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

std::vector<StagePlan> PlanStages(const Graph& graph, Device device) {
  return StageBuilder(graph, device).Build();
}

}  // namespace pando
