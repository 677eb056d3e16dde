#include "server/shard_records.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/hash.h"
#include "plan/tensor_init.h"

namespace pando {

ShardRecords::ShardRecords(ShardId id, const JobPlan& plan, size_t state_floats,
                           const BufferSource& buffers)
    : id_(id),
      plan_(plan),
      range_(plan.shards.range(id)),
      state_floats_(state_floats),
      parameter_pool_(range_.size(), buffers),
      state_pool_(state_floats),
      encoded_pool_(plan.pulls.PayloadBytes(id) / sizeof(float), buffers) {}

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
  is_state_shared_ = true;  // the source may still read it
  if (!newest_.hash) HashNewest();
  Commit();
  for (VersionRecord& record : records) {
    const uint64_t kept = plan_.steps.versions_kept();
    const bool is_pinned = record.version.value() + kept <= newest_.version.value();
    if (is_pinned) {
      pinned_ = std::move(record);
    } else {
      earlier_.push_back(std::move(record));
    }
  }
  ReleasePin(released_);
}

void ShardRecords::Clear() {
  newest_ = {};
  is_state_shared_ = false;
  earlier_.clear();
  pinned_.reset();
  committed_ = Version(0);
}

std::vector<VersionRecord> ShardRecords::ShareKept() {
  PANDO_CHECK(has_data() && committed_ == newest_.version);
  is_state_shared_ = true;
  std::vector<VersionRecord> records;
  if (pinned_) records.push_back(*pinned_);
  records.insert(records.end(), earlier_.begin(), earlier_.end());
  records.push_back(newest_);
  return records;
}

uint64_t ShardRecords::NewestHash() const {
  return RecordHash(newest_.version, newest_.parameters->span(), newest_.state->span());
}

const VersionRecord* ShardRecords::Find(Version version) const {
  if (version > committed_) return nullptr;  // P9
  if (has_data() && version == newest_.version) return &newest_;
  const auto earlier = std::ranges::find(earlier_, version, &VersionRecord::version);
  if (earlier != earlier_.end()) return &*earlier;
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

// P4. The contributions to step t prove that version t − s is committed everywhere, with s =
// train.staleness. So no step below t − s is computed again, and no worker asks for a version below
// t − 2s. The record is dropped first, so that the next version gets its memory.
void ShardRecords::DropOldest() {
  if (!DropsOldest()) return;
  if (IsPinDue(earlier_.front())) pinned_ = std::move(earlier_.front());
  earlier_.pop_front();
}

// Only the newest record needs optimizer state: the next one takes it, unless a reader holds it.
VersionRecord ShardRecords::StartNext() {
  PANDO_CHECK(!PinIsInTheWay());
  DropOldest();
  return {VersionMadeBy(StepUpdating(newest_.version)), parameter_pool_.Take(),
          is_state_shared_ ? state_pool_.Take() : newest_.state, std::nullopt};
}

}  // namespace pando
