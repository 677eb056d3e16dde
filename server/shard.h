// Shard is the server's core for one shard whose primary this lane is: it collects a step's
// contributions, makes the next version record when the tree is complete, and says what to answer.
// Called by the lane; speaks no messages itself.
//
// clang-format off
//   state           | event                         | what happens
//   ----------------+-------------------------------+---------------------------------------------
//   version t kept, | push of step t                | summed (or dropped: held already), waiter
//   t − 1 too       |                               | noted
//                   | push of step t − 1 or t − 2   | answered from the record kept (P10)
//                   | push of an older step         | Behind(t)
//                   | push of a later step, a node  | refused: a peer's mistake (P4)
//                   | that the tree lacks           |
//                   | tree complete, scalars known, | record t + 1 made and committed; t − 1
//                   | no pin in the way             | dropped, or pinned if an evaluation is due
//                   |                               | on it (P31)
//                   | tree complete, t − 1 is due   | waits for the scheduler's ReleasePin
//                   | and another version pinned    |
// clang-format on
//
// Threads: none. Owns: two version records, one pin (section 12), the pending contributions.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "common/job_plan.h"
#include "proto/messages.h"
#include "server/aggregator.h"
#include "server/optimizer.h"

namespace pando {

// P7. Its parameters are immutable once made; the one unit of reply, transfer and check.
struct VersionRecord {
  Version version;
  SharedBuffer parameters;
  SharedBuffer state;  // optimizer's, of the newest version; null on older records
  Blob payload() const { return ToBlob(parameters); }
};

class Shard {
 public:
  // `plan` and `optimizer` outlive the shard. Starts at version 0, made from the job's seed.
  Shard(ShardId id, const JobPlan& plan, const Optimizer& optimizer);

  ShardId id() const { return id_; }
  Version committed() const { return newest_.version; }
  std::vector<TreeNode> held_nodes() const { return aggregator_.held_nodes(); }

  enum class Taken : uint8_t {
    kNew,        // held now
    kDuplicate,  // was held already, or its step is past
    kRefused,    // no such node, wrong size, or a step that cannot be yet: a peer's mistake
  };
  Taken Add(const PushItem& item);

  // The record of exactly this version (I4), if it is kept and committed.
  const VersionRecord* Find(Version version) const;
  // Whether this version is gone for good: the caller answers Behind.
  bool IsGone(Version version) const { return version < committed() && Find(version) == nullptr; }

  // The step whose contributions are being collected.
  Step step() const { return StepReading(committed()); }
  // Whether the next version could be made but for its scalars.
  bool is_ready() const;
  // Makes and commits the next version.  REQUIRES: is_ready().
  void Advance(const StepScalars& scalars);
  // No evaluation needs versions up to this one any more (P31).
  void ReleasePin(Version version);

 private:
  bool PinIsInTheWay() const;
  void DropPrevious();

  ShardId id_;
  const JobPlan& plan_;
  const Optimizer& optimizer_;
  ShardRange range_;
  BufferPool parameter_pool_;
  BufferPool state_pool_;
  VersionRecord newest_;
  std::optional<VersionRecord> previous_;
  std::optional<VersionRecord> pinned_;
  Version released_;  // versions up to here need no pin
  Aggregator aggregator_;
};

}  // namespace pando
