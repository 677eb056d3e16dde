#include "server/replicas.h"

namespace pando {

// ---- roles -------------------------------------------------------------------------------------

Replicas::Changes Replicas::EnterView() {
  Changes changes;
  const std::vector<ShardPlacement>& placements = member_.view().shards;
  for (uint32_t i = 0; i < placements.size() && i < plan_.shards.shard_count(); ++i)
    Assume(ShardId(i), placements[i], &changes);
  return changes;
}

void Replicas::Assume(ShardId id, const ShardPlacement& placement, Changes* changes) {
  const PeerId& self = member_.self();
  const bool is_primary = placement.primary == self;
  const bool is_backup =
      std::ranges::find(placement.in_sync_backups, self) != placement.in_sync_backups.end();
  const auto syncing = std::ranges::find(placement.syncing_backups, self, &SyncingBackup::peer);
  const bool is_syncing = syncing != placement.syncing_backups.end();
  if (!is_primary && !is_backup && !is_syncing) {
    if (replicas_.erase(id) != 0) changes->dropped.push_back(id);
    return;
  }
  auto [it, is_new] = replicas_.try_emplace(id, id, plan_, maker_, buffers_);
  Replica& replica = it->second;
  if (is_new) replica.shard.records().ReleasePin(released_);
  if (is_primary) {
    AssumePrimary(replica, changes);
  } else if (is_backup) {
    AssumeBackup(replica, placement.primary);
  } else {
    AssumeSyncing(replica, placement.primary, syncing->since, changes);
  }
}

void Replicas::AssumePrimary(Replica& replica, Changes* changes) {
  const bool was_primary = replica.is_primary();
  replica.Become(ReplicaRole::kPrimary, member_.self(), std::nullopt);
  if (!replica.shard.has_data()) return StartAtZero(replica);
  if (was_primary) return;
  replica.shard.StartLeading();
  changes->promoted.push_back(replica.shard.id());
}

void Replicas::AssumeBackup(Replica& replica, const PeerId& primary) {
  if (replica.is_primary()) replica.shard.StopLeading();
  replica.Become(ReplicaRole::kBackup, primary, std::nullopt);
  if (!replica.shard.has_data()) StartAtZero(replica);
}

// P24: a new primary or a new `since` makes a new pair, which starts over.
void Replicas::AssumeSyncing(Replica& replica, const PeerId& primary, ViewId since,
                             Changes* changes) {
  const bool is_same = replica.role_ == ReplicaRole::kSyncing && replica.primary_ == primary &&
                       replica.pair_ == since;
  if (is_same) return;
  replica.Become(ReplicaRole::kSyncing, primary, since);
  replica.shard.Clear();
  changes->emptied.push_back(replica.shard.id());
}

// Gives the replica its data if the generation begins with version 0.
void Replicas::StartAtZero(Replica& replica) {
  if (member_.view().restore.version != Version(0)) return;
  replica.shard.records().StartAtZero();
  Restored(replica.shard.id());
}

// ---- facts -------------------------------------------------------------------------------------

Version Replicas::committed() const {
  Version lowest = plan_.steps.final_version();
  for (const auto& [id, replica] : replicas_) {
    if (!replica.is_primary()) continue;
    const bool is_whole = replica.shard.has_data();
    lowest =
        std::min(lowest, is_whole ? replica.shard.committed() : member_.view().restore.version);
  }
  return lowest;
}

Step Replicas::lowest_step() const {
  Version lowest = plan_.steps.final_version();
  for (const auto& [id, replica] : replicas_) {
    if (replica.shard.has_data()) {
      lowest = std::min(lowest, replica.shard.committed());
    } else if (replica.role_ != ReplicaRole::kSyncing) {
      lowest = std::min(lowest, member_.view().restore.version);
    }
  }
  return StepUpdating(lowest);
}

// A backup learns of a commit one version later, so its newest version counts.
Step Replicas::highest_step() const {
  Version highest;
  for (const auto& [id, replica] : replicas_) {
    if (replica.shard.has_data()) highest = std::max(highest, replica.shard.newest());
  }
  return StepUpdating(highest);
}

}  // namespace pando
