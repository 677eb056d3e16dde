#include "tests/sim/check/journal_checker.h"

#include <algorithm>

#include "proto/assignment.h"

namespace pando::sim {
namespace {

bool IsInSync(const ShardPlacement& placement, const PeerId& peer) {
  return placement.primary == peer ||
         std::ranges::find(placement.in_sync_backups, peer) != placement.in_sync_backups.end();
}

}  // namespace

void JournalChecker::OnCommitted(const std::optional<SchedulerState>& before,
                                 const SchedulerState& after) {
  const View none;
  const View& old = before ? before->view : none;
  if (after.view.generation < old.generation) Fail("P21: the generation goes back");
  if (after.view.id < old.id) Fail("P25: views go back");
  if (after.view.generation > old.generation) CheckRollback(old, after.view);
  parts_.versions.SetView(after.view);
  if (old.id != after.view.id) CheckTransition(old, after.view);
  for (const SnapshotManifest& manifest : after.snapshots) {
    if (manifests_.insert(manifest.snapshot).second) CheckManifest(manifest);
  }
  CheckOrigin(after);
  CheckEvaluations(after);
  parts_.versions.SetDecided(DecidedBy(after.evaluations));
  parts_.versions.CheckAllHeld();
}

void JournalChecker::CheckEvaluations(const SchedulerState& state) {
  if (state.evaluations.size() == evaluated_.size()) return;
  evaluated_.clear();
  for (const EvaluationSummary& summary : state.evaluations) {
    if (!evaluated_.insert(summary.version).second) Fail("a version is evaluated twice");
  }
}

void JournalChecker::NoteSynced(const Synced& synced) {
  for (const SyncedItem& item : synced.items)
    synced_.insert({item.shard, item.newcomer, item.pair});
}

// P32: up to where the run may go before the next result is known.
Version JournalChecker::DecidedBy(const std::vector<EvaluationSummary>& evaluations) const {
  if (!plan_.job.may_stop_early()) return plan_.steps.final_version();
  if (const auto stop = StopVersion(plan_.job, evaluations)) return *stop;
  return plan_.NextEvaluation(evaluations.empty() ? Version(0) : evaluations.back().version);
}

// Promotions, transfers and missing replicas.
void JournalChecker::CheckTransition(const View& before, const View& after) {
  CheckGivenUp(before, after);
  if (after.generation != before.generation || before.shards.empty()) return;
  const bool has_worker = std::ranges::any_of(
      after.owners, [](const MicroBatchOwner& owner) { return owner.worker != kUnknownNode; });
  if (!has_worker && !after.owners.empty()) parts_.coverage.Note(Event::kNoWorker);
  for (size_t i = 0; i < before.shards.size() && i < after.shards.size(); ++i) {
    const ShardPlacement& was = before.shards[i];
    const ShardPlacement& is = after.shards[i];
    // P24: in sync before, or reported by the source of just this pair.
    const auto may_be_in_sync = [&](const PeerId& peer) {
      if (IsInSync(was, peer)) return true;
      const auto pair = std::ranges::find(was.syncing_backups, peer, &SyncingBackup::peer);
      const ShardId shard(static_cast<uint32_t>(i));
      if (pair == was.syncing_backups.end() || !synced_.contains({shard, peer, pair->since})) {
        Fail("P24: shard " + std::to_string(i) + " has a replica that was never synced");
      }
      parts_.coverage.Note(Event::kTransfer);
      return true;
    };
    if (may_be_in_sync(is.primary) && was.primary != is.primary)
      parts_.coverage.Note(Event::kPromotion);
    for (const PeerId& backup : is.in_sync_backups) may_be_in_sync(backup);
    for (const SyncingBackup& syncing : was.syncing_backups) {
      const bool goes_on =
          std::ranges::find(is.syncing_backups, syncing) != is.syncing_backups.end();
      if (!goes_on && !IsInSync(is, syncing.peer)) parts_.coverage.Note(Event::kMoveUndone);
    }
  }
}

// I2: rollbacks happen only if needed, and only to an existing snapshot.
void JournalChecker::CheckRollback(const View& before, const View& after) {
  parts_.coverage.Note(Event::kRollback);
  if (after.restore.version != Version(0)) parts_.coverage.Note(Event::kRollbackToStored);
  // Two replicas cannot vote.
  const bool has_few = std::ranges::any_of(before.shards, [](const ShardPlacement& placement) {
    return placement.in_sync_backups.size() < 2;
  });
  const bool is_excused = (!has_wrong_memory_.empty() && has_few) || is_resuming_ ||
                          has_divergence_ || failed_restores_ > 0 || parts_.truth.is_tainted();
  is_resuming_ = false;
  if (failed_restores_ > 0) --failed_restores_;
  const auto is_lost = [&](const PeerId& peer) {
    const Process* process = FindProcess(parts_.processes, peer.incarnation);
    return process == nullptr || parts_.disturbances.IsDisturbed(*process);
  };
  const bool has_cause = std::ranges::any_of(before.shards, [&](const ShardPlacement& placement) {
    return is_lost(placement.primary) && std::ranges::all_of(placement.in_sync_backups, is_lost);
  });
  if (!is_excused && !has_cause && !before.shards.empty()) {
    Fail("I2: a rollback although every shard has an undisturbed replica in sync");
  }
}

// P27, P33: no living, connected process that has not left is given up.
void JournalChecker::CheckGivenUp(const View& before, const View& after) {
  for (const NodeInfo& node : before.nodes) {
    if (FindNode(after, node.node) != nullptr) continue;
    const Process* process = FindProcess(parts_.processes, node.incarnation);
    if (process == nullptr || process->is_leaving()) continue;
    if (drained_.contains({node.role, node.rank})) continue;
    if (has_wrong_memory_.contains(node.incarnation)) continue;
    // A newcomer has a copy of the wrong bits.
    const bool is_newcomer = std::ranges::any_of(before.shards, [&](const ShardPlacement& shard) {
      return std::ranges::any_of(shard.syncing_backups, [&](const SyncingBackup& syncing) {
        return syncing.peer.incarnation == node.incarnation;
      });
    });
    if (!has_wrong_memory_.empty() && is_newcomer) continue;
    parts_.coverage.Note(Event::kFalseSuspicion);
    if (parts_.disturbances.IsDisturbed(*process) || parts_.truth.is_tainted()) continue;
    Fail("P27: " + process->seat().name + " is given up, though nothing kept its messages back");
  }
}

void JournalChecker::CheckFiles(const std::optional<SchedulerState>& state) {
  if (!state) return;
  for (const SnapshotManifest& manifest : state->snapshots) {
    if (!parts_.disk.Check(manifest).status.ok())
      Fail("P47: a standby that leads lacks files of snapshot " + Text(manifest.snapshot.version));
  }
}

// P29: all shards' records of exactly this version, in files that are there.
void JournalChecker::CheckManifest(const SnapshotManifest& manifest) {
  parts_.coverage.Note(Event::kSnapshot);
  const Version version = manifest.snapshot.version;
  if (version == Version(0)) return;
  if (manifest.shards.size() != plan_.shards.shard_count()) return Fail("P29: shards are missing");
  for (uint32_t s = 0; s < manifest.shards.size(); ++s) {
    const ShardId shard(s);
    const auto* records = parts_.disk.Find(manifest.snapshot, shard);
    const VirtualDisk::Record* record = nullptr;
    for (size_t i = 0; records != nullptr && i < records->size(); ++i) {
      if ((*records)[i].file == manifest.shards[s].file) record = &(*records)[i];
    }
    const std::string name =
        "P29: shard " + std::to_string(s) + " of snapshot " + std::to_string(version.value());
    if (record == nullptr) return Fail(name + " is in the manifest and not on the disk");
    const auto expected = parts_.truth.reference().ShardAt(shard, version);
    const bool is_equal = SameBits(record->parameters, expected) &&
                          parts_.truth.reference().HashOfState(record->state) ==
                              parts_.truth.reference().StateHashAt(shard, version);
    if (!is_equal && !parts_.truth.HasOwnBits())
      return Fail(name + " differs from the serial run's");
    if (RecordHash(version, record->parameters, record->state) != manifest.shards[s].hash) {
      return Fail(name + " has another hash than its manifest says");
    }
  }
}

// P30: what this generation began from stays until the generation has completed another, or no
// server could read it.
void JournalChecker::CheckOrigin(const SchedulerState& state) {
  const SnapshotRef& origin = state.view.restore;
  if (origin.version == Version(0) || forgotten_.contains(origin)) return;
  const bool is_there = std::ranges::any_of(state.snapshots, [&](const SnapshotManifest& kept) {
    return kept.snapshot == origin || kept.snapshot.version > origin.version;
  });
  if (!is_there) Fail("P30: the snapshot that the generation began from is dropped");
}

// No file goes that a manifest in the journal names.
void JournalChecker::OnSnapshotDropped(const SnapshotManifest& dropped,
                                       const SchedulerState& state) {
  for (const SnapshotManifest& kept : state.snapshots) {
    for (const StoredShard& shard : kept.shards) {
      const bool is_dropped = std::ranges::any_of(dropped.shards, [&](const StoredShard& other) {
        return !shard.file.empty() && other.file == shard.file;
      });
      if (is_dropped) Fail("P30: a file of a snapshot that is kept is dropped");
    }
  }
}

}  // namespace pando::sim
