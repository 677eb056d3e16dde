// ShardRecords holds the version records of one shard: the newest, those before it that steps may
// still read (P4), and a pinned one (P7; docs/protocol.md, section 12). Shard owns it and decides
// when the next record is made and committed. Threads: none. Owns: the records and their buffers.
// Invariant I4.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "common/buffer_pool.h"
#include "plan/job_plan.h"

namespace pando {

// P7. VersionRecord is the unit of replies, images, snapshots and checks, with constant parameters.
struct VersionRecord {
  Version version;
  SharedBuffer parameters;
  SharedBuffer state;                      // as VersionMaker makes it; null if it is not the newest
  std::optional<uint64_t> hash;            // set if there are replicas to compare with
  mutable SharedBuffer encoded = nullptr;  // the form for workers (P34), after the first request
};

class ShardRecords {
 public:
  // `plan` outlives the records. `buffers` supplies the memory of what is sent.
  ShardRecords(ShardId id, const JobPlan& plan, size_t state_floats, const BufferSource& buffers);

  size_t parameter_floats() const { return range_.size(); }
  size_t state_floats() const { return state_floats_; }

  // ---- data ------------------------------------------------------------------------------------
  bool has_data() const { return newest_.parameters != nullptr; }
  void StartAtZero();  // version 0
  // Takes records of committed versions, ascending: a pinned one, the earlier ones that are kept,
  // and the newest with its state. REQUIRES: sizes as above; there is no data.
  void Install(std::vector<VersionRecord> records);
  void Clear();

  Version newest_version() const { return newest_.version; }
  const VersionRecord& newest() const { return newest_; }
  // The newest version known to be committed. A backup is one behind while it keeps its newest
  // root.
  Version committed() const { return committed_; }
  void Commit() { committed_ = newest_.version; }
  // Returns the newest record, which the caller may keep and read on any thread, for a snapshot.
  const VersionRecord& ShareNewest() {
    is_state_shared_ = true;
    return newest_;
  }
  // Returns all kept records, ascending, as an image (P20).  REQUIRES: the newest is committed.
  std::vector<VersionRecord> ShareKept();

  // Returns the newest record's hash; computes it if needed. REQUIRES: has_data().
  uint64_t NewestHash() const;
  void HashNewest() { newest_.hash = NewestHash(); }
  // Returns the hash of a kept record, if it is known.
  std::optional<uint64_t> KnownHash(Version version) const {
    if (version == newest_.version) return newest_.hash;
    const auto record = std::ranges::find(earlier_, version, &VersionRecord::version);
    return record == earlier_.end() ? std::nullopt : record->hash;
  }
  // Returns the record of exactly this version (I4), if it is kept and committed.
  const VersionRecord* Find(Version version) const;
  // Returns the parameters of this version in this form, if Find returns its record.
  std::optional<Blob> Show(Version version, ParamsForm form);
  // Returns whether this version will never be available again. The caller then answers Behind.
  bool IsGone(Version version) const { return version < committed_ && Find(version) == nullptr; }

  // ---- the next version ------------------------------------------------------------------------
  // No evaluation needs versions up to this one any more (P31).
  void ReleasePin(Version version) {
    released_ = std::max(released_, version);
    if (pinned_ && pinned_->version <= released_) pinned_.reset();
  }
  // Returns whether the next record must wait for a ReleasePin: it would drop a version on which an
  // evaluation is due, and another version has the one pin (docs/protocol.md, section 12).
  bool PinIsInTheWay() const { return pinned_ && DropsOldest() && IsPinDue(earlier_.front()); }
  // Returns a record for the next version, whose floats the caller writes. Its state may be the
  // newest record's, to be updated in place. Drops or pins the oldest version.
  VersionRecord StartNext();
  // Makes `next` the newest record.
  void FinishNext(VersionRecord next) {
    newest_.state.reset();
    is_state_shared_ = false;
    earlier_.push_back(std::exchange(newest_, std::move(next)));
  }

 private:
  // Whether the oldest record is not needed any more once the next one is made.
  bool DropsOldest() const {
    const uint64_t kept = plan_.steps.versions_kept();
    return !earlier_.empty() &&
           earlier_.front().version.value() + kept <= newest_.version.value() + 1;
  }
  bool IsPinDue(const VersionRecord& record) const {
    return plan_.IsEvaluationDue(record.version) && record.version > released_;
  }
  void DropOldest();

  const ShardId id_;
  const JobPlan& plan_;
  const ShardRange range_;
  const size_t state_floats_;
  BufferPool parameter_pool_;
  BufferPool state_pool_;
  BufferPool encoded_pool_;
  VersionRecord newest_;
  bool is_state_shared_ = false;       // another reader may read the newest record's state
  std::deque<VersionRecord> earlier_;  // ascending, without a gap up to the newest
  std::optional<VersionRecord> pinned_;
  Version committed_;
  Version released_;  // versions up to here need no pin
};

}  // namespace pando
