// Shard is the data of one replica of a shard. It keeps the version records and a primary's pending
// contributions, and makes the next record from these or, as a backup, from the primary's root. The
// lane's parts call it; they know the replica's role. It sends no messages.
//
// clang-format off
//   state           | event                         | what happens
//   ----------------+-------------------------------+---------------------------------------------
//   no data         | from the seed, a snapshot, a  | its newest version is committed
//                   | transferred image             |
//   primary,        | push of step t to t + s       | summed (or dropped: held already), waiter
//   version t made, |                               | noted; s is train.staleness
//   2s + 1 before   | push of a step whose version  | answered from the record kept (P10)
//   it kept         | is kept                       |
//                   | push of an older step         | Behind(t)
//                   | push of a later step, a node  | refused: a peer's mistake (P4)
//                   | that the tree lacks           |
//   ... t committed | tree complete, scalars known, | its partial values are made, where the job
//                   | no pin in the way             | has any, and served from now on (P16)
//                   | ... and the factors known     | sealed: its root goes to the backups; then
//                   |                               | record t + 1 is made; the oldest dropped, or
//                   |                               | pinned if an evaluation is due on it (P31)
//                   | tree complete, the oldest is  | waits for the scheduler's ReleasePin
//                   | due and another one pinned    |
//   ... t not yet   | all required backups acked it | committed: shown from now on (P9)
//   backup,         | root of step t                | t is committed; record t + 1 is made, its
//   version t made  |                               | root kept (P22); held while a pin is in the way
//                   | root of an older step         | acknowledged again
//                   | promoted                      | t counts as committed unless its root is
//                   |                               | kept: then that is resent first (P22)
// clang-format on
//
// Threads: none. Owns: the version records, at most three roots (docs/protocol.md, section 12), the
// pending contributions.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "common/buffer_pool.h"
#include "optim/version_maker.h"
#include "plan/job_plan.h"
#include "server/shard_records.h"
#include "server/step_aggregators.h"

namespace pando {

// StepRoot has the values from which every replica makes the next record (P8).
struct StepRoot {
  Step step;
  StepScalars scalars;
  Blob gradient;                    // the tree's root: the unscaled sum over the step's samples
  std::vector<float> factors = {};  // P16; empty if the update needs none
};

class Shard {
 public:
  // Starts without data. `plan` and `maker` outlive the shard. `buffers` is that of ShardRecords.
  Shard(ShardId id, const JobPlan& plan, const VersionMaker& maker,
        const BufferSource& buffers = {});

  ShardId id() const { return id_; }

  // ---- data ------------------------------------------------------------------------------------
  const ShardRecords& records() const { return records_; }
  ShardRecords& records() { return records_; }
  bool has_data() const { return records_.has_data(); }
  Version newest() const { return records_.newest_version(); }
  Version committed() const { return records_.committed(); }
  // Replaces everything that is held; see ShardRecords::Install. The newest record of a snapshot is
  // enough: the versions before it that steps still read are in its state.
  void Install(std::vector<VersionRecord> records);
  void Clear() {
    records_.Clear();
    StopLeading();
    ForgetRoots();
  }

  // ---- primary ---------------------------------------------------------------------------------
  // Makes the shard collect contributions, or no longer.  REQUIRES: has_data().
  void StartLeading();
  void StopLeading() {
    partials_.clear();
    held_root_.reset();
    sealed_.reset();
    aggregators_.Stop();
  }
  // The step that updates the newest version. Contributions to it and to the `staleness` steps
  // after it are collected (P4).
  Step step() const { return StepUpdating(newest()); }
  // Returns the nodes that are held for this step. If the newest version is made and not committed
  // yet, the step that made it is complete: its root is held.  REQUIRES: the step updates
  // committed(), or one of the `staleness` versions after it.
  std::vector<TreeNode> held_nodes(Step step) const {
    if (step < this->step()) return {MicroBatchTree::kRoot};
    return aggregators_.At(step).held_nodes();
  }

  enum class Taken : uint8_t {
    kNew,        // held from now on
    kDuplicate,  // held already, or its step is past
    kRefused,    // an unknown node, a wrong size or a later step: the peer's mistake
  };
  Taken Add(const PushItem& item);
  // Returns whether the next version lacks only its scalars and factors.
  bool is_ready() const {
    return has_data() && !is_sealed() && committed() == newest() &&
           aggregators_.At(step()).is_complete() && !records_.PinIsInTheWay();
  }
  bool is_sealed() const { return sealed_.has_value(); }
  // Makes the partial values of step().  REQUIRES: is_ready().
  void MakePartials(const StepScalars& scalars);
  bool has_partials() const { return !partials_.empty(); }  // of step()
  // P16. Returns the partial values of this step: the current step's after MakePartials or, on any
  // replica, those of the step that made the newest record. Empty if they are unknown.
  std::span<const float> FindPartials(Step step) const;
  // Returns the step's root, which goes to backups before the record is made. REQUIRES: is_ready();
  // `factors` are those that the optimizer needs.
  const StepRoot& Seal(const StepScalars& scalars, std::vector<float> factors = {});
  // Makes the sealed record.  REQUIRES: is_sealed().
  void MakeSealed() {
    Make(*sealed_);
    records_.HashNewest();
    previous_root_ = std::exchange(newest_root_, std::exchange(sealed_, std::nullopt));
    aggregators_.OnMade(newest());
  }
  // Seals and makes the record at once: without backups the root and the hash are not needed later.
  void MakeAlone(const StepScalars& scalars, std::vector<float> factors);
  // Returns the roots that make versions after this one, ascending.
  std::vector<const StepRoot*> RootsAfter(Version version) const;
  // P22. Makes the version of a backup's root, which another primary had sealed: step() is
  // complete. Returns whether it did; a pin may be in the way.
  bool Adopt(const StepRoot& root) {
    if (is_sealed() || records_.PinIsInTheWay() || Follow(root) != Followed::kMade) return false;
    aggregators_.OnMade(newest());
    return true;
  }
  void ForgetRoots() {
    newest_root_.reset();
    previous_root_.reset();
  }

  // ---- backup ----------------------------------------------------------------------------------
  enum class Followed : uint8_t {
    kMade,     // the root's version is the newest now
    kHas,      // the version was made before
    kHeld,     // a pin delays it: FollowHeld makes it after ReleasePin
    kRefused,  // a version between is missing, or a size is wrong
  };
  Followed Follow(const StepRoot& root);
  // Makes the held version if no pin delays it any more.  Returns whether it did.
  bool FollowHeld() {
    if (!held_root_) return false;
    const StepRoot root = *held_root_;
    return Follow(root) == Followed::kMade;
  }

 private:
  VersionMaker::Inputs InputsFor(const Blob& gradient, const StepScalars& scalars) const;
  void Make(const StepRoot& root, const Blob& right_half = {});

  const ShardId id_;
  const JobPlan& plan_;
  const VersionMaker& maker_;
  ShardRecords records_;
  // Used by a primary.
  StepAggregators aggregators_;
  std::vector<float> partials_;     // of step(); empty until they are made
  std::optional<StepRoot> sealed_;  // of step()
  // The roots of the newest and the previous record, while a backup may need them.
  std::optional<StepRoot> newest_root_;
  std::optional<StepRoot> previous_root_;
  // Used by a backup.
  std::optional<StepRoot> held_root_;
};

}  // namespace pando
