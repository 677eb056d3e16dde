#include "server/shard.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/hash.h"
#include "common/mutation.h"
#include "common/tensor_init.h"

namespace pando {

Shard::Shard(ShardId id, const JobPlan& plan, const Optimizer& optimizer,
             const BufferSource& buffers)
    : id_(id),
      plan_(plan),
      optimizer_(optimizer),
      range_(plan.shards.range(id)),
      parameter_pool_(parameter_floats(), buffers),
      state_pool_(state_floats()),
      encoded_pool_(plan.pulls.PayloadBytes(id) / sizeof(float), buffers),
      aggregator_(parameter_floats(), plan.pushes.CodecOf(id), buffers) {}

// ---- data --------------------------------------------------------------------------------------

void Shard::StartFromSeed() {
  newest_ = {Version(0), parameter_pool_.Take(), state_pool_.Take(), std::nullopt};
  InitRange(plan_.layout, plan_.job.seed, range_, newest_.parameters->span());
  std::ranges::fill(newest_.state->span(), 0.0f);
}

void Shard::Install(std::vector<VersionRecord> records) {
  PANDO_CHECK(!records.empty());
  Clear();
  newest_ = std::move(records.back());
  records.pop_back();
  if (newest_.state == nullptr) newest_.state = state_pool_.Take();
  PANDO_CHECK(newest_.parameters->size() == parameter_floats());
  PANDO_CHECK(newest_.state->size() == state_floats());
  is_state_shared_ = true;  // whose it was before we do not know
  HashNewest();
  committed_ = newest();
  for (VersionRecord& record : records) {
    const bool is_previous = VersionMadeBy(StepReading(record.version)) == newest();
    (is_previous ? previous_ : pinned_) = std::move(record);
  }
  ReleasePin(released_);
}

void Shard::Clear() {
  newest_ = {};
  is_state_shared_ = false;
  previous_.reset();
  pinned_.reset();
  committed_ = Version(0);
  StopLeading();
  ForgetRoots();
}

uint64_t Shard::NewestHash() const {
  return RecordHash(newest(), newest_.parameters->span(), newest_.state->span());
}

std::optional<uint64_t> Shard::KnownHash(Version version) const {
  if (version == newest()) return newest_.hash;
  if (previous_ && version == previous_->version) return previous_->hash;
  return std::nullopt;
}

const VersionRecord* Shard::Find(Version version) const {
  if (version > committed_ && !Mutated(Mutation::kShowUncommitted)) return nullptr;  // P9
  if (has_data() && version == newest()) return &newest_;
  if (previous_ && version == previous_->version) return &*previous_;
  if (pinned_ && version == pinned_->version) return &*pinned_;
  return nullptr;
}

std::optional<Blob> Shard::Show(Version version, ParamsForm form) {
  const VersionRecord* record = Find(version);
  if (record == nullptr) return std::nullopt;
  const ShardCodec* codec = plan_.pulls.CodecOf(id_);
  if (codec == nullptr || form == ParamsForm::kExact) return ToBlob(record->parameters);
  if (record->encoded == nullptr) {
    record->encoded = encoded_pool_.Take();
    codec->Encode(record->parameters->span(), std::as_writable_bytes(record->encoded->span()));
  }
  return ToBlob(record->encoded);
}

const VersionRecord& Shard::ShareNewest() {
  is_state_shared_ = true;
  return newest_;
}

std::vector<VersionRecord> Shard::ShareKept() {
  PANDO_CHECK(has_data() && committed_ == newest());
  is_state_shared_ = true;
  std::vector<VersionRecord> records;
  if (Mutated(Mutation::kOneVersionTransfer)) return {newest_};
  if (pinned_) records.push_back(*pinned_);
  if (previous_) records.push_back(*previous_);
  records.push_back(newest_);
  return records;
}

// The next version drops the previous one. If that is due for evaluation it must be pinned, and
// there is one pin (section 12).
bool Shard::PinIsInTheWay() const {
  return pinned_ && previous_ && plan_.IsEvaluationDue(previous_->version) &&
         previous_->version > released_;
}

// P4: the contributions to step t prove that version t is committed everywhere, so nobody will ask
// for t − 1 again. It goes first, and its memory is the next version's.
void Shard::DropPrevious() {
  const bool is_due = previous_ && plan_.IsEvaluationDue(previous_->version);
  if (is_due && previous_->version > released_) pinned_ = std::move(previous_);
  previous_.reset();
}

void Shard::ReleasePin(Version version) {
  released_ = std::max(released_, version);
  if (pinned_ && pinned_->version <= released_) pinned_.reset();
}

// What makes the next version, but for where it goes and its factors. `gradient` lives as long.
Optimizer::Update Shard::UpdateOf(const Blob& gradient, const StepScalars& scalars) const {
  return {.range = range_,
          .parameters = newest_.parameters->span(),
          .gradient = gradient.floats(),
          .gradient_scale = 1.0f / static_cast<float>(plan_.steps.SampleCount(step())),
          .scalars = scalars,
          .is_first_step = step() == Step(0),
          .state = std::as_const(*newest_.state).span()};
}

// `right_half`: of a gradient that is not added up yet.
void Shard::Make(const StepRoot& root, const Blob& right_half) {
  PANDO_CHECK(root.step == step() && !PinIsInTheWay());
  if (optimizer_.has_partials() && partials_.empty()) {
    partials_.resize(optimizer_.partial_count(range_));
    optimizer_.MakePartials(UpdateOf(root.gradient, root.scalars), partials_);
  }
  DropPrevious();
  // The older record needs no optimizer state: unless somebody reads it, the next one takes it
  // over.
  SharedBuffer state = newest_.state;
  SharedBuffer next_state = is_state_shared_ ? state_pool_.Take() : state;
  VersionRecord next{VersionMadeBy(step()), parameter_pool_.Take(), next_state, std::nullopt};
  Optimizer::Update update = UpdateOf(root.gradient, root.scalars);
  if (right_half.size_bytes() != 0) update.gradient_right = right_half.floats();
  update.factors = root.factors;
  update.parameters_out = next.parameters->span();
  update.state_out = next_state->span();
  optimizer_.Apply(update);
  was_followed_ = !is_sealed();
  std::ranges::copy(partials_, next_state->span().last(partials_.size()).begin());
  partials_.clear();
  newest_.state.reset();
  is_state_shared_ = false;
  previous_ = std::exchange(newest_, std::move(next));
}

// ---- primary -----------------------------------------------------------------------------------

void Shard::StartLeading() {
  PANDO_CHECK(has_data());
  partials_.clear();
  held_root_.reset();
  sealed_.reset();
  if (Mutated(Mutation::kNoRootResend)) {
    Commit();
    ForgetRoots();
  }
  BeginStep();
}

void Shard::StopLeading() {
  partials_.clear();
  held_root_.reset();
  sealed_.reset();
  aggregator_.Begin(MicroBatchTree({}));
}

void Shard::BeginStep() {
  const bool is_last = newest() == plan_.steps.final_version();
  aggregator_.Begin(is_last ? MicroBatchTree({}) : plan_.steps.Tree(step()));
}

// While the newest version is not committed, the step before it lacks nothing.
std::vector<TreeNode> Shard::held_nodes() const {
  if (newest() > committed_) return {MicroBatchTree::kRoot};
  return aggregator_.held_nodes();
}

// P4: a contribution to a step proves that the version it reads is committed. A promoted replica
// may not know that yet; it holds the contribution all the same.
Shard::Taken Shard::Add(const PushItem& item) {
  if (item.step < step()) return Taken::kDuplicate;
  if (item.step > step() || newest() == plan_.steps.final_version()) return Taken::kRefused;
  if (item.payload.size_bytes() != plan_.pushes.PayloadBytes(id_)) return Taken::kRefused;
  if (!aggregator_.tree().IsCanonical(item.node)) return Taken::kRefused;
  if (aggregator_.is_complete()) return Taken::kDuplicate;
  return aggregator_.Add(item.node, item.payload) ? Taken::kNew : Taken::kDuplicate;
}

bool Shard::is_ready() const {
  return has_data() && !is_sealed() && committed_ == newest() && aggregator_.is_complete() &&
         !PinIsInTheWay();
}

void Shard::MakePartials(const StepScalars& scalars) {
  PANDO_CHECK(is_ready() && optimizer_.has_partials());
  partials_.resize(optimizer_.partial_count(range_));
  optimizer_.MakePartials(UpdateOf(aggregator_.root(), scalars), partials_);
}

std::span<const float> Shard::PartialsOf(Step step) const {
  if (!has_data()) return {};
  if (step == this->step())
    return Mutated(Mutation::kPartialsFromRecordsOnly) ? std::span<const float>() : partials_;
  if (VersionMadeBy(step) != newest()) return {};
  if (Mutated(Mutation::kPartialsNotInBackups) && was_followed_) return {};
  return std::as_const(*newest_.state).span().last(optimizer_.partial_count(range_));
}

const StepRoot& Shard::Seal(const StepScalars& scalars, std::vector<float> factors) {
  PANDO_CHECK(is_ready());
  return sealed_.emplace(step(), scalars, aggregator_.root(), std::move(factors));
}

void Shard::MakeSealed() {
  Make(*sealed_);
  HashNewest();
  previous_root_ = std::exchange(newest_root_, std::exchange(sealed_, std::nullopt));
  BeginStep();
}

void Shard::MakeAlone(const StepScalars& scalars, std::vector<float> factors) {
  PANDO_CHECK(is_ready());
  if (optimizer_.has_partials()) aggregator_.root();  // whole already, for their sake
  const auto [gradient, right_half] = aggregator_.root_halves();
  sealed_.emplace(step(), scalars, gradient, std::move(factors));
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

void Shard::ForgetRoots() {
  newest_root_.reset();
  previous_root_.reset();
}

// ---- backup ------------------------------------------------------------------------------------

Shard::Followed Shard::Follow(const StepRoot& root) {
  if (!has_data() || root.step > step() || root.step.value() >= plan_.steps.step_count())
    return Followed::kRefused;
  if (root.gradient.floats().size() != range_.size()) return Followed::kRefused;
  if (root.factors.size() != optimizer_.factor_count(range_)) return Followed::kRefused;
  if (root.step < step()) return Followed::kHas;
  if (PinIsInTheWay()) {
    held_root_ = root;
    return Followed::kHeld;
  }
  Commit();  // P4: this root is made of contributions to the step that reads it
  Make(root);
  HashNewest();
  newest_root_ = root;
  previous_root_.reset();
  held_root_.reset();
  return Followed::kMade;
}

bool Shard::FollowHeld() {
  if (!held_root_) return false;
  const StepRoot root = *held_root_;
  return Follow(root) == Followed::kMade;
}

}  // namespace pando
