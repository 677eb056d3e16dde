// ShardRecords holds the version records of one shard: the newest, the one before it, and a pinned
// one (P7, section 12). Owned by the shard, which says when the next record is made and committed.
// Threads: none. Owns: the records and their buffers. Invariant I4.
#pragma once

#include <optional>
#include <vector>

#include "common/float_buffer.h"
#include "plan/job_plan.h"
#include "proto/messages.h"

namespace pando {

// P7. Its parameters are immutable once made; the one unit of reply, transfer, snapshot and check.
struct VersionRecord {
  Version version;
  SharedBuffer parameters;
  SharedBuffer state;            // optimizer's, of the newest version; null on older records. Its
                                 // tail are the partial values of the step before (P16)
  std::optional<uint64_t> hash;  // known where there are replicas to compare with
  mutable SharedBuffer encoded = nullptr;  // for workers (P34), once one has asked
};

class ShardRecords {
 public:
  // `plan` outlives the records. `buffers`: of what travels.
  ShardRecords(ShardId id, const JobPlan& plan, size_t state_floats, const BufferSource& buffers);

  size_t parameter_floats() const { return range_.size(); }
  size_t state_floats() const { return state_floats_; }

  // ---- data ------------------------------------------------------------------------------------
  bool has_data() const { return newest_.parameters != nullptr; }
  void StartFromSeed();  // version 0
  // Records of committed versions, ascending: the newest with state, the one before it, a pinned
  // one.  REQUIRES: sizes as above; there is no data.
  void Install(std::vector<VersionRecord> records);
  void Clear();

  Version newest_version() const { return newest_.version; }
  const VersionRecord& newest() const { return newest_; }
  // Known to be committed: a backup's is one behind while it keeps its newest version's root.
  Version committed() const { return committed_; }
  void Commit() { committed_ = newest_.version; }
  // The newest record, to keep and to read on any thread: for a snapshot.
  const VersionRecord& ShareNewest() {
    is_state_shared_ = true;
    return newest_;
  }
  // All records kept, ascending: a transfer's image (P20).  REQUIRES: the newest is committed.
  std::vector<VersionRecord> ShareKept();

  // Of the newest record, computed if need be.  REQUIRES: has_data().
  uint64_t NewestHash() const;
  void HashNewest() { newest_.hash = NewestHash(); }
  // Of a record that is kept, if it is known.
  std::optional<uint64_t> KnownHash(Version version) const {
    if (version == newest_.version) return newest_.hash;
    if (previous_ && version == previous_->version) return previous_->hash;
    return std::nullopt;
  }
  // The record of exactly this version (I4), if it is kept and committed.
  const VersionRecord* Find(Version version) const;
  // Its parameters, as a worker is shown them.
  std::optional<Blob> Show(Version version, ParamsForm form);
  // Whether this version is gone for good: the caller answers Behind.
  bool IsGone(Version version) const { return version < committed_ && Find(version) == nullptr; }

  // ---- the next version ------------------------------------------------------------------------
  // No evaluation needs versions up to this one any more (P31).
  void ReleasePin(Version version) {
    released_ = std::max(released_, version);
    if (pinned_ && pinned_->version <= released_) pinned_.reset();
  }
  // Whether the next record has to wait for a ReleasePin: it drops the previous version, which is
  // due for evaluation and would have to be pinned, and there is one pin (section 12).
  bool PinIsInTheWay() const {
    return pinned_ && previous_ && plan_.IsEvaluationDue(previous_->version) &&
           previous_->version > released_;
  }
  // A record for the next version, whose floats are the caller's to write. Its state may be that of
  // the newest record, to be updated in place. Drops the previous version, or pins it.
  VersionRecord StartNext();
  // The next version is made: it is the newest from now on.
  void FinishNext(VersionRecord next) {
    newest_.state.reset();
    is_state_shared_ = false;
    previous_ = std::exchange(newest_, std::move(next));
  }

 private:
  void DropPrevious();

  const ShardId id_;
  const JobPlan& plan_;
  const ShardRange range_;
  const size_t state_floats_;
  BufferPool parameter_pool_;
  BufferPool state_pool_;
  BufferPool encoded_pool_;
  VersionRecord newest_;
  bool is_state_shared_ = false;  // another reader may hold the newest record's state
  std::optional<VersionRecord> previous_;
  std::optional<VersionRecord> pinned_;
  Version committed_;
  Version released_;  // versions up to here need no pin
};

}  // namespace pando
