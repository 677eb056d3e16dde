// Replicas: the shards that one lane holds, and its role for each according to the lane's view. The
// lane's parts read roles here and work on the shards.
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
  // All outlive the replicas. `buffers` gives the memory of what is sent.
  Replicas(const ViewMember& member, const JobPlan& plan, const VersionMaker& maker,
           const BufferSource& buffers)
      : member_(member), plan_(plan), maker_(maker), buffers_(buffers) {}

  // The changes of a new view, beyond roles.
  struct Changes {
    std::vector<ShardId> dropped;   // the view does not name the lane any more
    std::vector<ShardId> emptied;   // syncing, in a new pair: they start over
    std::vector<ShardId> promoted;  // primaries that held data and were not primaries before
  };
  // Takes the roles of the member's view. If the generation begins from the seed, replicas have
  // their data at once. Other in-sync replicas without data wait for Restored().
  Changes EnterView();
  // Drops everything, because all of it is of an older generation (P21).
  void Clear() {
    replicas_.clear();
    released_ = Version(0);
  }
  // An in-sync replica now has its data; a primary starts to lead.
  void Restored(ShardId shard) {
    Replica& replica = replicas_.at(shard);
    if (replica.is_primary()) replica.shard.StartLeading();
  }
  // No evaluation needs versions up to this one any more (P31).
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

  // The version that all shards whose primary the lane is have committed; the final one if none.
  Version committed() const;
  // The lowest and the highest step at which any replica is. Backups count, so that a promoted one
  // need not wait for an absent scheduler (P28).
  Step lowest_step() const;
  Step highest_step() const;
  bool is_primary_of_any() const {
    return std::ranges::any_of(replicas_ | std::views::values, &Replica::is_primary);
  }
  // Whether a primary still has no data.
  bool is_restoring() const {
    return std::ranges::any_of(replicas_ | std::views::values, [](const Replica& replica) {
      return replica.is_primary() && !replica.shard.has_data();
    });
  }
  // Whether `version_in` differs between the lane's primaries.
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
