#include "server/shard.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/hash.h"
#include "plan/tensor_init.h"

namespace pando {

Shard::Shard(ShardId id, const JobPlan& plan, const VersionMaker& maker,
             const BufferSource& buffers)
    : id_(id),
      plan_(plan),
      maker_(maker),
      records_(id, plan, maker.state_floats(id), buffers),
      aggregator_(plan.shards.range(id).size(), plan.pushes.codec(id), buffers) {}

// ---- the next version --------------------------------------------------------------------------

// Collects the inputs of the next version. `gradient` outlives the result.
VersionMaker::Inputs Shard::InputsFor(const Blob& gradient, const StepScalars& scalars) const {
  return {.shard = id_,
          .step = step(),
          .scalars = scalars,
          .parameters = records_.newest().parameters->span(),
          .state = std::as_const(*records_.newest().state).span(),
          .gradient = gradient.floats()};
}

// `right_half` belongs to a gradient whose halves are not added yet.
void Shard::Make(const StepRoot& root, const Blob& right_half) {
  PANDO_CHECK(root.step == step());
  VersionMaker::Inputs inputs = InputsFor(root.gradient, root.scalars);
  if (maker_.has_partials() && partials_.empty()) partials_ = maker_.MakePartials(inputs);
  VersionRecord next = records_.StartNext();
  if (right_half.size_bytes() != 0) inputs.gradient_right = right_half.floats();
  maker_.Make(inputs, {partials_, root.factors}, {next.parameters->span(), next.state->span()});
  partials_.clear();
  records_.FinishNext(std::move(next));
}

// ---- primary -----------------------------------------------------------------------------------

void Shard::StartLeading() {
  PANDO_CHECK(has_data());
  StopLeading();  // so that nothing of an earlier lead remains
  BeginStep();
}

// P4: a contribution to a step proves that the version that it reads is committed. A promoted
// replica may not know that yet, but it takes the contribution.
Shard::Taken Shard::Add(const PushItem& item) {
  if (item.step < step()) return Taken::kDuplicate;
  if (item.step > step() || newest() == plan_.steps.final_version()) return Taken::kRefused;
  if (item.payload.size_bytes() != plan_.pushes.PayloadBytes(id_)) return Taken::kRefused;
  if (!aggregator_.tree().IsCanonical(item.node)) return Taken::kRefused;
  if (aggregator_.is_complete()) return Taken::kDuplicate;
  return aggregator_.Add(item.node, item.payload) ? Taken::kNew : Taken::kDuplicate;
}

void Shard::MakePartials(const StepScalars& scalars) {
  PANDO_CHECK(is_ready() && maker_.has_partials());
  partials_ = maker_.MakePartials(InputsFor(aggregator_.root(), scalars));
}

std::span<const float> Shard::FindPartials(Step step) const {
  if (!has_data()) return {};
  if (step == this->step()) return partials_;
  if (VersionMadeBy(step) != newest()) return {};
  return maker_.StoredPartials(id_, std::as_const(*records_.newest().state).span());
}

const StepRoot& Shard::Seal(const StepScalars& scalars, std::vector<float> factors) {
  PANDO_CHECK(is_ready());
  return sealed_.emplace(StepRoot{step(), scalars, aggregator_.root(), std::move(factors)});
}

void Shard::MakeAlone(const StepScalars& scalars, std::vector<float> factors) {
  PANDO_CHECK(is_ready());
  if (maker_.has_partials()) aggregator_.root();  // partial values need the whole sum
  const auto [gradient, right_half] = aggregator_.root_halves();
  sealed_ = StepRoot{step(), scalars, gradient, std::move(factors)};
  Make(*sealed_, right_half);
  previous_root_ = std::exchange(newest_root_, std::nullopt);
  sealed_.reset();
  BeginStep();
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
  records_.Commit();  // P4: this root sums contributions to the step that reads the version
  Make(root);
  records_.HashNewest();
  newest_root_ = root;
  previous_root_.reset();
  held_root_.reset();
  return Followed::kMade;
}

// ---- the records
// ---------------------------------------------------------------------------------

ShardRecords::ShardRecords(ShardId id, const JobPlan& plan, size_t state_floats,
                           const BufferSource& buffers)
    : id_(id),
      plan_(plan),
      range_(plan.shards.range(id)),
      state_floats_(state_floats),
      parameter_pool_(range_.size(), buffers),
      state_pool_(state_floats),
      encoded_pool_(plan.pulls.PayloadBytes(id) / sizeof(float), buffers) {}

// ---- data --------------------------------------------------------------------------------------

void ShardRecords::StartAtZero() {
  newest_ = {Version(0), parameter_pool_.Take(), state_pool_.Take(), std::nullopt};
  FillVersionZero(plan_, range_, newest_.parameters->span());
  std::ranges::fill(newest_.state->span(), 0.0f);
}

void ShardRecords::Install(std::vector<VersionRecord> records) {
  PANDO_CHECK(!records.empty() && !has_data());
  newest_ = std::move(records.back());
  records.pop_back();
  if (newest_.state == nullptr) newest_.state = state_pool_.Take();
  PANDO_CHECK(newest_.parameters->size() == parameter_floats());
  PANDO_CHECK(newest_.state->size() == state_floats());
  is_state_shared_ = true;  // the giver may still read it
  HashNewest();
  Commit();
  for (VersionRecord& record : records) {
    const bool is_previous = VersionMadeBy(StepReading(record.version)) == newest_.version;
    (is_previous ? previous_ : pinned_) = std::move(record);
  }
  ReleasePin(released_);
}

void ShardRecords::Clear() {
  newest_ = {};
  is_state_shared_ = false;
  previous_.reset();
  pinned_.reset();
  committed_ = Version(0);
}

std::vector<VersionRecord> ShardRecords::ShareKept() {
  PANDO_CHECK(has_data() && committed_ == newest_.version);
  is_state_shared_ = true;
  std::vector<VersionRecord> records;
  if (pinned_) records.push_back(*pinned_);
  if (previous_) records.push_back(*previous_);
  records.push_back(newest_);
  return records;
}

uint64_t ShardRecords::NewestHash() const {
  return RecordHash(newest_.version, newest_.parameters->span(), newest_.state->span());
}

const VersionRecord* ShardRecords::Find(Version version) const {
  if (version > committed_) return nullptr;  // P9
  if (has_data() && version == newest_.version) return &newest_;
  if (previous_ && version == previous_->version) return &*previous_;
  if (pinned_ && version == pinned_->version) return &*pinned_;
  return nullptr;
}

std::optional<Blob> ShardRecords::Show(Version version, ParamsForm form) {
  const VersionRecord* record = Find(version);
  if (record == nullptr) return std::nullopt;
  const ShardCodec* codec = plan_.pulls.codec(id_);
  if (codec == nullptr || form == ParamsForm::kExact) return ToBlob(record->parameters);
  if (record->encoded == nullptr) {
    record->encoded = encoded_pool_.Take();
    codec->Encode(record->parameters->span(), std::as_writable_bytes(record->encoded->span()));
  }
  return ToBlob(record->encoded);
}

// ---- the next version --------------------------------------------------------------------------

// P4: the contributions to step t prove that version t is committed everywhere, so no worker will
// ask for t − 1 again. It is dropped first, so that the next version gets its memory.
void ShardRecords::DropPrevious() {
  const bool is_due = previous_ && plan_.IsEvaluationDue(previous_->version);
  if (is_due && previous_->version > released_) pinned_ = std::move(previous_);
  previous_.reset();
}

// An older record needs no optimizer state. Unless another reader holds the state, the next record
// takes it over.
VersionRecord ShardRecords::StartNext() {
  PANDO_CHECK(!PinIsInTheWay());
  DropPrevious();
  return {VersionMadeBy(StepReading(newest_.version)), parameter_pool_.Take(),
          is_state_shared_ ? state_pool_.Take() : newest_.state, std::nullopt};
}

}  // namespace pando
