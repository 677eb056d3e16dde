#include "optim/version_maker.h"

#include <algorithm>

#include "common/check.h"

namespace pando {

Optimizer::Update VersionMaker::ToUpdate(const Inputs& inputs) const {
  return {.range = range(inputs.shard),
          .parameters = inputs.parameters,
          .gradient = inputs.gradient,
          .gradient_right = inputs.gradient_right,
          .gradient_scale = 1.0f / static_cast<float>(plan_.steps.SampleCount(inputs.step)),
          .weight_scale = plan_.job.optimizer.is_weighted ? std::optional(1.0f) : std::nullopt,
          .scalars = inputs.scalars,
          .is_first_step = optimizer_.turns().StepsBefore(inputs.step) == 0,
          .is_first_of_run = inputs.step == Step(0),
          .group = optimizer_.turns().GroupAt(inputs.step),
          .state = OfOptimizer(inputs.shard, inputs.state)};
}

std::vector<float> VersionMaker::MakePartials(const Inputs& inputs) const {
  PANDO_CHECK(inputs.gradient_right.empty());
  std::vector<float> partials(partial_count(inputs.shard));
  optimizer_.MakePartials(ToUpdate(inputs), partials);
  return partials;
}

void VersionMaker::Make(const Inputs& inputs, const Norms& norms, const Outputs& outputs) const {
  PANDO_CHECK(norms.partials.size() == partial_count(inputs.shard));
  Optimizer::Update update = ToUpdate(inputs);
  const Version updated = VersionUpdatedBy(inputs.step);
  if (plan_.steps.VersionReadBy(inputs.step) < updated)
    update.read = EarlierParameters(inputs.shard, inputs.state);
  update.factors = norms.factors;
  if (plan_.job.optimizer.is_weighted) update.weight_scale = norms.factors.back();
  update.parameters_out = outputs.parameters;
  update.state_out = OfOptimizer(inputs.shard, outputs.state);
  optimizer_.Apply(update);
  std::ranges::copy(norms.partials, update.state_out.last(norms.partials.size()).begin());
  if (earlier_floats(inputs.shard) > 0)
    std::ranges::copy(inputs.parameters, outputs.state.last(inputs.parameters.size()).begin());
}

}  // namespace pando
