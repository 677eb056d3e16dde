#include "cli/group_update.h"

#include <algorithm>
#include <utility>

namespace pando {

GroupUpdate::GroupUpdate(const JobPlan& plan, ParameterStore& store, const Timed& timed)
    : plan_(plan),
      store_(store),
      schedule_(plan.job.optimizer, plan.job.schedule, plan.steps.step_count()),
      optimizer_(plan.job.optimizer, plan.layout),
      partial_plan_(plan.job.optimizer, plan.layout, plan.shards),
      timed_(timed),
      partials_(plan.shards.shard_count()) {
  if (timed.timeline != nullptr) {
    update_name_ = timed.timeline->Name({"update", "update", "shard"});
    partials_name_ = timed.timeline->Name({"partial values", "update", "shard"});
  }
  for (const ShardRange& range : plan.shards.ranges())
    states_.emplace_back(optimizer_.state_floats(range));
}

std::vector<ShardId> GroupUpdate::Apply(const GradientExchange::Sums& sums) {
  ShardPlan::Run made = sums.shards;
  if (!partial_plan_.is_empty()) {
    for (uint32_t s = made.first; s < made.last; ++s)
      MakePartials(sums.step, ShardId(s), *sums.flat);
    if (made.first > 0) return {};  // the first shard is the last to come
    made = {0, plan_.shards.shard_count()};
  }
  std::vector<ShardId> shards;
  for (uint32_t s = made.first; s < made.last; ++s) {
    std::vector<float> factors;
    if (!partial_plan_.is_empty()) {
      factors = *partial_plan_.Combine(
          ShardId(s), [&](ShardId id) -> std::span<const float> { return partials_[id.value()]; });
    }
    Make(sums.step, ShardId(s), *sums.flat, factors);
    shards.emplace_back(s);
  }
  return shards;
}

TimelineSpan GroupUpdate::SpanOf(TimelineNameId name, Step step, ShardId shard) const {
  const bool is_wanted = timed_.timeline != nullptr && timed_.timeline->Wants(step);
  return {is_wanted ? timed_.track : nullptr, name, step, shard.value()};
}

// What makes the shard's next version, but for where it goes and its factors.
Optimizer::Update GroupUpdate::UpdateOf(Step step, ShardId shard, const FloatBuffer& values,
                                        const FloatBuffer& gradients) const {
  const ShardRange& range = plan_.shards.range(shard);
  return {.range = range,
          .parameters = values.span().subspan(range.first, range.size()),
          .gradient = gradients.span().subspan(range.first, range.size()),
          .gradient_scale = 1.0f / static_cast<float>(plan_.steps.SampleCount(step)),
          .scalars = schedule_.At(step),
          .is_first_step = step == Step(0),
          .state = states_[shard.value()].span()};
}

// P16: they are the tail of the state as well, as in every replica's.
void GroupUpdate::MakePartials(Step step, ShardId shard, const FloatBuffer& gradients) {
  const TimelineSpan span = SpanOf(partials_name_, step, shard);
  const auto values = *store_.Open(VersionReadBy(step));
  std::vector<float>& partials = partials_[shard.value()];
  partials.resize(optimizer_.partial_count(plan_.shards.range(shard)));
  optimizer_.MakePartials(UpdateOf(step, shard, *values, gradients), partials);
  std::ranges::copy(partials, states_[shard.value()].span().last(partials.size()).begin());
}

void GroupUpdate::Make(Step step, ShardId shard, const FloatBuffer& gradients,
                       std::span<const float> factors) {
  const TimelineSpan span = SpanOf(update_name_, step, shard);
  const ShardRange& range = plan_.shards.range(shard);
  const Version next_version = VersionMadeBy(step);
  const auto values = *store_.Open(VersionReadBy(step));
  const SharedBuffer next = store_.Writable(next_version);
  Optimizer::Update update = UpdateOf(step, shard, *values, gradients);
  update.factors = factors;
  update.parameters_out = next->span().subspan(range.first, range.size());
  update.state_out = states_[shard.value()].span();
  optimizer_.Apply(update);
  store_.Arrived(shard, next_version);
}

}  // namespace pando
