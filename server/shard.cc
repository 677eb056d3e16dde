#include "server/shard.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/check.h"
#include "server/bit_flip.h"

namespace pando {

Shard::Shard(ShardId id, const JobPlan& plan, const VersionMaker& maker,
             const BufferSource& buffers)
    : id_(id),
      plan_(plan),
      maker_(maker),
      records_(id, plan, maker.state_floats(id), buffers),
      aggregators_(plan.steps, plan.shards.range(id).size(), plan.pushes.codec(id), buffers) {}

void Shard::Install(std::vector<VersionRecord> records) {
  Clear();
  const VersionRecord& newest = records.back();
  const bool is_snapshot = records.size() == 1 && newest.version > Version(0);
  if (is_snapshot && plan_.steps.staleness() > 0) {
    const std::span<const float> earlier =
        maker_.EarlierParameters(id_, std::as_const(*newest.state).span());
    auto parameters = std::make_shared<FloatBuffer>(earlier.size());
    std::ranges::copy(earlier, parameters->data());
    const Version before = plan_.steps.VersionReadBy(StepUpdating(newest.version));
    records.insert(records.begin(), {before, std::move(parameters), nullptr, std::nullopt});
  }
  records_.Install(std::move(records));
}

// ---- the next version --------------------------------------------------------------------------

// Returns the inputs of the next version. `gradient` outlives the result.
VersionMaker::Inputs Shard::InputsFor(const Blob& gradient, const StepScalars& scalars) const {
  return {.shard = id_,
          .step = step(),
          .scalars = scalars,
          .parameters = records_.newest().parameters->span(),
          .state = std::as_const(*records_.newest().state).span(),
          .gradient = gradient.floats()};
}

// Makes the next record. `right_half` is that of a gradient whose halves are not added yet.
void Shard::Make(const StepRoot& root, const Blob& right_half) {
  PANDO_CHECK(root.step == step());
  VersionMaker::Inputs inputs = InputsFor(root.gradient, root.scalars);
  if (maker_.has_partials() && partials_.empty()) partials_ = maker_.MakePartials(inputs);
  VersionRecord next = records_.StartNext();
  if (right_half.size_bytes() != 0) inputs.gradient_right = right_half.floats();
  maker_.Make(inputs, {partials_, root.factors}, {next.parameters->span(), next.state->span()});
  partials_.clear();
  FlipRecord(id_, next.version, next.parameters->span(), next.state->span());
  records_.FinishNext(std::move(next));
}

// ---- primary -----------------------------------------------------------------------------------

void Shard::StartLeading() {
  PANDO_CHECK(has_data());
  StopLeading();  // so that nothing of an earlier lead remains
  aggregators_.Start(newest());
}

// P4. A contribution to a step proves that the version that the step reads is committed. So a
// promoted replica takes it, even if it does not know this yet.
Shard::Taken Shard::Add(const PushItem& item) {
  if (item.step < step()) return Taken::kDuplicate;
  if (!aggregators_.Collects(item.step, newest())) return Taken::kRefused;
  if (item.payload.size_bytes() != plan_.pushes.PayloadBytes(id_)) return Taken::kRefused;
  Aggregator& contributions = aggregators_.At(item.step);
  if (!contributions.tree().IsCanonical(item.node)) return Taken::kRefused;
  if (contributions.is_complete()) return Taken::kDuplicate;
  return contributions.Add(item.node, item.payload) ? Taken::kNew : Taken::kDuplicate;
}

void Shard::MakePartials(const StepScalars& scalars) {
  PANDO_CHECK(is_ready() && maker_.has_partials());
  partials_ = maker_.MakePartials(InputsFor(aggregators_.At(step()).FinishRoot(), scalars));
}

std::span<const float> Shard::FindPartials(Step step) const {
  if (!has_data()) return {};
  if (step == this->step()) return partials_;
  if (VersionMadeBy(step) != newest()) return {};
  return maker_.StoredPartials(id_, std::as_const(*records_.newest().state).span());
}

const StepRoot& Shard::Seal(const StepScalars& scalars, std::vector<float> factors) {
  PANDO_CHECK(is_ready());
  return sealed_.emplace(
      StepRoot{step(), scalars, aggregators_.At(step()).FinishRoot(), std::move(factors)});
}

void Shard::MakeAlone(const StepScalars& scalars, std::vector<float> factors) {
  PANDO_CHECK(is_ready());
  Aggregator& contributions = aggregators_.At(step());
  if (maker_.has_partials()) contributions.FinishRoot();  // partial values need the whole sum
  const auto [gradient, right_half] = contributions.root_halves();
  sealed_ = StepRoot{step(), scalars, gradient, std::move(factors)};
  Make(*sealed_, right_half);
  previous_root_ = std::exchange(newest_root_, std::nullopt);
  sealed_.reset();
  aggregators_.OnMade(newest());
}

std::vector<const StepRoot*> Shard::RootsAfter(Version version) const {
  std::vector<const StepRoot*> roots;
  for (const auto* root : {&previous_root_, &newest_root_, &sealed_}) {
    if (root->has_value() && VersionMadeBy((*root)->step) > version) roots.push_back(&**root);
  }
  return roots;
}

// ---- backup ------------------------------------------------------------------------------------

Shard::Followed Shard::Follow(const StepRoot& root) {
  if (!has_data() || root.step > step() || root.step.value() >= plan_.steps.step_count())
    return Followed::kRefused;
  if (root.gradient.floats().size() != records_.parameter_floats()) return Followed::kRefused;
  if (root.factors.size() != maker_.factor_count(id_)) return Followed::kRefused;
  if (root.step < step()) return Followed::kHas;
  if (records_.PinIsInTheWay()) {
    held_root_ = root;
    return Followed::kHeld;
  }
  partials_.clear();  // a promoted replica may have made them already
  records_.Commit();  // the primary seals a step only after it has committed the version before
  Make(root);
  records_.HashNewest();
  newest_root_ = root;
  previous_root_.reset();
  held_root_.reset();
  return Followed::kMade;
}

}  // namespace pando
