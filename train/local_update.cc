#include "train/local_update.h"

#include <utility>

namespace pando {

LocalUpdate::LocalUpdate(const JobPlan& plan, ParameterStore& store, const Timed& timed)
    : plan_(plan),
      store_(store),
      schedule_(plan.job.optimizer, plan.job.schedule, plan.steps.step_count()),
      maker_(plan),
      timed_(timed) {
  if (timed.timeline != nullptr) {
    update_name_ = timed.timeline->Name({"update", "update", "shard"});
    partials_name_ = timed.timeline->Name({"partial values", "update", "shard"});
  }
  for (uint32_t s = 0; s < plan.shards.shard_count(); ++s)
    states_.emplace_back(maker_.state_floats(ShardId(s)));
}

void LocalUpdate::Apply(Root root, const OnMade& on_made) {
  if (!maker_.has_partials()) return Make({std::move(root), {}, {}}, on_made);
  std::vector<float> partials = MakePartials(root);
  for (const Ready& ready : Await(std::move(root), std::move(partials))) Make(ready, on_made);
}

VersionMaker::Inputs LocalUpdate::InputsFor(const Root& root, const FloatBuffer& values) const {
  const ShardRange& range = plan_.shards.range(root.shard);
  return {.shard = root.shard,
          .step = root.step,
          .scalars = schedule_.At(root.step),
          .parameters = values.span().subspan(range.first, range.size()),
          .state = states_[root.shard.value()].span(),
          .gradient = root.gradient.floats()};
}

std::vector<float> LocalUpdate::MakePartials(const Root& root) const {
  const TimelineTrack::Span span = StartSpan(partials_name_, root);
  const auto values = *store_.Open(VersionUpdatedBy(root.step));
  return maker_.MakePartials(InputsFor(root, *values));
}

// The roots for which these are the last missing values.
std::vector<LocalUpdate::Ready> LocalUpdate::Await(Root root, std::vector<float> partials) {
  const PartialPlan& partial_plan = maker_.partial_plan();
  const Step step = root.step;
  const uint32_t shard_count = plan_.shards.shard_count();
  std::lock_guard lock(mutex_);
  Waiting& waiting = waiting_[step];
  partial_plan.AddTo(&waiting.total, root.shard, partials);
  waiting.partials.emplace(root.shard, std::move(partials));
  const ShardPlan::Run waiting_for_it = partial_plan.needs_total()
                                            ? ShardPlan::Run{0, shard_count}
                                            : partial_plan.Neighbours(root.shard);
  waiting.roots.emplace(root.shard, std::move(root));
  std::vector<Ready> ready;
  if (partial_plan.needs_total() && waiting.partials.size() < shard_count) return ready;
  for (uint32_t s = waiting_for_it.first; s < waiting_for_it.last; ++s) {
    if (!waiting.roots.contains(ShardId(s))) continue;
    auto factors = partial_plan.Combine(ShardId(s), waiting.total, [&](ShardId id) {
      const auto at = waiting.partials.find(id);
      return at == waiting.partials.end() ? std::span<const float>() : at->second;
    });
    if (!factors) continue;
    ready.push_back({std::move(waiting.roots.extract(ShardId(s)).mapped()),
                     waiting.partials.at(ShardId(s)), *std::move(factors)});
  }
  const bool is_over = waiting.roots.empty() && waiting.partials.size() == shard_count;
  if (is_over) waiting_.erase(step);
  return ready;
}

// Writes the state in place: no other thread reads it.
void LocalUpdate::Make(const Ready& ready, const OnMade& on_made) {
  const Root& root = ready.root;
  const ShardRange& range = plan_.shards.range(root.shard);
  SharedBuffer next;
  {
    const TimelineTrack::Span span = StartSpan(update_name_, root);
    const auto values = *store_.Open(VersionUpdatedBy(root.step));
    next = store_.Writable(VersionMadeBy(root.step));
    maker_.Make(
        InputsFor(root, *values), {ready.partials, ready.factors},
        {next->span().subspan(range.first, range.size()), states_[root.shard.value()].span()});
  }
  on_made(root.step, root.shard, next);
}

TimelineTrack::Span LocalUpdate::StartSpan(TimelineNameId name, const Root& root) const {
  const bool is_wanted = timed_.timeline != nullptr && timed_.timeline->Wants(root.step);
  return {is_wanted ? timed_.track : nullptr, name, root.step, root.shard.value()};
}

}  // namespace pando
