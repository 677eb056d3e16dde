// Replicas keeps the shards that one lane holds and the lane's role for each in its view. The
// lane's parts read the roles and work on the shards.
//
// clang-format off
//   role     | in the view                 | how it gets there             | what is kept
//   ---------+-----------------------------+-------------------------------+-----------------------
//   primary  | primary                     | restored, or promoted: its    | backups (Replication),
//            |                             | uncommitted root is resent    | waiting workers (Replies)
//   backup   | in_sync_backups             | restored, in sync, demoted    |
//   syncing  | syncing_backups             | empty; a new pair (primary,   | the incoming image, as
//            |                             | since) starts over (P24)      | long as the pair lasts
//            |                             |                               | (Following)
//   (none)   | not named, or of an older   |                               | nothing
//            | generation (P21)            |                               |
// clang-format on
//
// Threads: none. Owns: the shards.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <ranges>
#include <vector>

#include "proto/view_member.h"
#include "server/replica.h"
#include "server/shard.h"

namespace pando {

class Replicas {
 public:
  // All arguments outlive the replicas. `buffers` supplies the memory of what is sent.
  Replicas(const ViewMember& member, const JobPlan& plan, const VersionMaker& maker,
           const BufferSource& buffers)
      : member_(member), plan_(plan), maker_(maker), buffers_(buffers) {}

  // The replicas that a new view has changed in more than their roles.
  struct Changes {
    std::vector<ShardId> dropped;   // the view does not name the lane any more
    std::vector<ShardId> emptied;   // syncing in a new pair: they start over
    std::vector<ShardId> promoted;  // primaries that held data and were not primaries before
  };
  // Takes the roles of the lane's view. If the generation begins from version 0, replicas get their
  // data at once. Other in-sync replicas without data wait for Restored().
  Changes EnterView();
  // Drops everything: a new generation begins (P21).
  void Clear() {
    replicas_.clear();
    released_ = Version(0);
  }
  // Is called when an in-sync replica has got its data. A primary then starts to lead.
  void Restored(ShardId shard) {
    Replica& replica = replicas_.at(shard);
    if (replica.is_primary()) replica.shard.StartLeading();
  }
  // Releases the pins of versions up to this one, which no evaluation needs any more (P31).
  void ReleasePins(Version version) {
    released_ = std::max(released_, version);
    for (auto& [id, replica] : replicas_) replica.shard.records().ReleasePin(version);
  }

  const std::map<ShardId, Replica>& all() const { return replicas_; }
  std::map<ShardId, Replica>& all() { return replicas_; }
  const Replica* Find(ShardId shard) const {
    const auto it = replicas_.find(shard);
    return it == replicas_.end() ? nullptr : &it->second;
  }
  Replica* Find(ShardId shard) {
    return const_cast<Replica*>(static_cast<const Replicas*>(this)->Find(shard));
  }
  // Returns null unless the lane is the shard's primary.
  Shard* FindPrimary(ShardId shard) {
    Replica* replica = Find(shard);
    return replica != nullptr && replica->is_primary() ? &replica->shard : nullptr;
  }
  const Shard* FindPrimary(ShardId shard) const {
    const Replica* replica = Find(shard);
    return replica != nullptr && replica->is_primary() ? &replica->shard : nullptr;
  }

  // Returns the version that all shards of which the lane is primary have committed; the final
  // version if there are none.
  Version committed() const;
  // The lowest and the highest step of all replicas. Backups count, so that a promoted one has its
  // scalars even if the scheduler is absent (P28).
  Step lowest_step() const;
  Step highest_step() const;
  bool is_primary_of_any() const {
    return std::ranges::any_of(replicas_ | std::views::values, &Replica::is_primary);
  }
  // Returns whether a primary still has no data.
  bool is_restoring() const {
    return std::ranges::any_of(replicas_ | std::views::values, [](const Replica& replica) {
      return replica.is_primary() && !replica.shard.has_data();
    });
  }
  // Returns whether `version_in` differs between the lane's primaries.
  template <class VersionIn>
  bool VersionsDiffer(VersionIn version_in) const {
    std::optional<Version> first;
    for (const auto& [id, replica] : replicas_) {
      if (!replica.is_primary() || !replica.shard.has_data()) continue;
      const Version version = version_in(replica.shard);
      if (first && version != *first) return true;
      first = version;
    }
    return false;
  }

 private:
  void Assume(ShardId id, const ShardPlacement& placement, Changes* changes);
  void AssumePrimary(Replica& replica, Changes* changes);
  void AssumeBackup(Replica& replica, const PeerId& primary);
  void AssumeSyncing(Replica& replica, const PeerId& primary, ViewId since, Changes* changes);
  void StartAtZero(Replica& replica);

  const ViewMember& member_;
  const JobPlan& plan_;
  const VersionMaker& maker_;
  const BufferSource buffers_;
  std::map<ShardId, Replica> replicas_;
  Version released_;  // versions up to here need no pin (P31)
};

}  // namespace pando
