#include "server/replicas.h"

#include <ranges>

#include "server/transfer.h"

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
  replica.role_ = ReplicaRole::kPrimary;
  replica.primary_ = member_.self();
  replica.pair_.reset();
  if (!replica.shard.has_data()) return StartFromSeed(replica);
  if (was_primary) return;
  replica.shard.StartLeading();
  changes->promoted.push_back(replica.shard.id());
}

void Replicas::AssumeBackup(Replica& replica, const PeerId& primary) {
  if (replica.is_primary()) replica.shard.StopLeading();
  replica.role_ = ReplicaRole::kBackup;
  replica.primary_ = primary;
  replica.pair_.reset();
  if (!replica.shard.has_data()) StartFromSeed(replica);
}

// P24: a new primary or a new `since` is a new pair, and starts over.
void Replicas::AssumeSyncing(Replica& replica, const PeerId& primary, ViewId since,
                             Changes* changes) {
  const bool is_same = replica.role_ == ReplicaRole::kSyncing && replica.pair_ &&
                       replica.primary_ == primary && IsSamePair(*replica.pair_, since);
  if (is_same) return;
  replica.role_ = ReplicaRole::kSyncing;
  replica.primary_ = primary;
  replica.pair_ = since;
  replica.shard.Clear();
  changes->emptied.push_back(replica.shard.id());
}

// Where the generation begins from the seed.
void Replicas::StartFromSeed(Replica& replica) {
  if (member_.view().restore.version != Version(0)) return;
  replica.shard.records().StartFromSeed();
  Restored(replica.shard.id());
}

void Replicas::Restored(ShardId shard) {
  Replica& replica = replicas_.at(shard);
  if (replica.is_primary()) replica.shard.StartLeading();
}

void Replicas::Clear() {
  replicas_.clear();
  released_ = Version(0);
}

void Replicas::ReleasePins(Version version) {
  released_ = std::max(released_, version);
  for (auto& [id, replica] : replicas_) replica.shard.records().ReleasePin(version);
}

// ---- facts -------------------------------------------------------------------------------------

const Replica* Replicas::Find(ShardId shard) const {
  const auto it = replicas_.find(shard);
  return it == replicas_.end() ? nullptr : &it->second;
}

Replica* Replicas::Find(ShardId shard) {
  const auto it = replicas_.find(shard);
  return it == replicas_.end() ? nullptr : &it->second;
}

const Shard* Replicas::FindPrimary(ShardId shard) const {
  const Replica* replica = Find(shard);
  return replica != nullptr && replica->is_primary() ? &replica->shard : nullptr;
}

Shard* Replicas::FindPrimary(ShardId shard) {
  Replica* replica = Find(shard);
  return replica != nullptr && replica->is_primary() ? &replica->shard : nullptr;
}

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
  return StepReading(lowest);
}

// A backup is a version behind in what it knows to be committed.
Step Replicas::highest_step() const {
  Version highest;
  for (const auto& [id, replica] : replicas_) {
    if (replica.shard.has_data()) highest = std::max(highest, replica.shard.newest());
  }
  return StepReading(highest);
}

bool Replicas::is_primary_of_any() const {
  return std::ranges::any_of(replicas_ | std::views::values, &Replica::is_primary);
}

bool Replicas::is_restoring() const {
  return std::ranges::any_of(replicas_ | std::views::values, [](const Replica& replica) {
    return replica.is_primary() && !replica.shard.has_data();
  });
}

}  // namespace pando
