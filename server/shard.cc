#include "server/shard.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/tensor_init.h"

namespace pando {

Shard::Shard(ShardId id, const JobPlan& plan, const Optimizer& optimizer)
    : id_(id),
      plan_(plan),
      optimizer_(optimizer),
      range_(plan.shards.range(id)),
      parameter_pool_(range_.size()),
      state_pool_(range_.size() * optimizer.state_count()),
      aggregator_(range_.size()) {
  newest_ = {Version(0), parameter_pool_.Take(), state_pool_.Take()};
  InitRange(plan.layout, plan.job.seed, range_, newest_.parameters->span());
  std::ranges::fill(newest_.state->span(), 0.0f);
  aggregator_.Begin(plan.steps.Tree(step()));
}

Shard::Taken Shard::Add(const PushItem& item) {
  if (item.step < step()) return Taken::kDuplicate;
  // P4: a contribution to a later step would prove that this shard had committed its version.
  if (item.step > step() || committed() == plan_.steps.final_version()) return Taken::kRefused;
  if (item.payload.floats().size() != range_.size()) return Taken::kRefused;
  if (!aggregator_.tree().IsCanonical(item.node)) return Taken::kRefused;
  if (aggregator_.is_complete()) return Taken::kDuplicate;
  return aggregator_.Add(item.node, item.payload) ? Taken::kNew : Taken::kDuplicate;
}

const VersionRecord* Shard::Find(Version version) const {
  if (version == newest_.version) return &newest_;
  if (previous_ && version == previous_->version) return &*previous_;
  if (pinned_ && version == pinned_->version) return &*pinned_;
  return nullptr;
}

// The next version drops the previous one. If that is due for evaluation it must be pinned, and
// there is one pin (section 12).
bool Shard::PinIsInTheWay() const {
  return pinned_ && previous_ && plan_.IsEvaluationDue(previous_->version) &&
         previous_->version > released_;
}

bool Shard::is_ready() const { return aggregator_.is_complete() && !PinIsInTheWay(); }

// P4: the contributions to step t prove that version t is committed everywhere, so nobody will ask
// for t − 1 again. It goes first, and its memory is the next version's.
void Shard::DropPrevious() {
  const bool is_due = previous_ && plan_.IsEvaluationDue(previous_->version);
  if (is_due && previous_->version > released_) pinned_ = std::move(previous_);
  previous_.reset();
}

void Shard::Advance(const StepScalars& scalars) {
  PANDO_CHECK(is_ready());
  DropPrevious();
  // The older record needs no optimizer state: unless somebody reads it, the next one takes it
  // over.
  const bool is_state_ours = newest_.state.use_count() == 1;
  SharedBuffer state = newest_.state;
  SharedBuffer next_state = is_state_ours ? state : state_pool_.Take();
  VersionRecord next{VersionMadeBy(step()), parameter_pool_.Take(), next_state};
  optimizer_.Apply({.range = range_,
                    .parameters = newest_.parameters->span(),
                    .gradient = aggregator_.root(),
                    .gradient_scale = 1.0f / static_cast<float>(plan_.steps.SampleCount(step())),
                    .scalars = scalars,
                    .is_first_step = step() == Step(0),
                    .state = state->span(),
                    .parameters_out = next.parameters->span(),
                    .state_out = next_state->span()});
  newest_.state.reset();
  previous_ = std::exchange(newest_, std::move(next));
  const bool is_last = committed() == plan_.steps.final_version();
  aggregator_.Begin(is_last ? MicroBatchTree({}) : plan_.steps.Tree(step()));
}

void Shard::ReleasePin(Version version) {
  released_ = std::max(released_, version);
  if (pinned_ && pinned_->version <= released_) pinned_.reset();
}

}  // namespace pando
