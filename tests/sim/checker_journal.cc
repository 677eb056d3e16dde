// The half of Checker that reads the scheduler's journal: what may follow what.
#include <algorithm>
#include <cstring>

#include "common/hash.h"
#include "proto/assignment.h"
#include "tests/sim/checker.h"

namespace pando::sim {
namespace {

// A silence is explained for so long after its cause: two leases and a lease's grace (P23).
constexpr int kLeasesDisturbed = 4;

bool IsInSync(const ShardPlacement& placement, const PeerId& peer) {
  return placement.primary == peer ||
         std::ranges::find(placement.in_sync_backups, peer) != placement.in_sync_backups.end();
}

}  // namespace

void Checker::OnCommitted(const std::optional<SchedulerState>& before,
                          const SchedulerState& after) {
  const View none;
  const View& old = before ? before->view : none;
  if (after.view.generation < old.generation) Fail("P21: the generation goes back");
  if (after.view.id < old.id) Fail("P25: views go back");
  if (after.view.generation > old.generation) CheckRollback(old, after.view);
  view_ = after.view;
  generation_ = after.view.generation;
  if (old.id != after.view.id) CheckTransition(old, after.view);
  for (const SnapshotManifest& manifest : after.snapshots) {
    if (manifests_.insert(manifest.snapshot).second) CheckManifest(manifest);
  }
  CheckOrigin(after);
  if (after.evaluations.size() != evaluated_.size()) {
    evaluated_.clear();
    for (const EvaluationSummary& summary : after.evaluations) {
      if (!evaluated_.insert(summary.version).second) Fail("a version is evaluated twice");
    }
  }
  decided_ = DecidedBy(after.evaluations);
  CheckAllHeld();
}

// P32: up to where the run may go before the next result is known.
Version Checker::DecidedBy(const std::vector<EvaluationSummary>& evaluations) const {
  if (plan_.job.early_stop_patience == 0) return plan_.steps.final_version();
  if (const auto stop = StopVersion(plan_.job, evaluations)) return *stop;
  return plan_.NextEvaluation(evaluations.empty() ? Version(0) : evaluations.back().version);
}

bool Checker::IsLate(Micros end) const {
  return world_.now() <= end + kLeasesDisturbed * std::chrono::milliseconds(plan_.job.lease_ms);
}

bool Checker::IsDisturbed(const Process& process) const {
  const auto silent = silent_at_.find(process.incarnation());
  return process.is_stopped() || IsLate(process.disturbed_until()) ||
         (silent != silent_at_.end() && IsLate(silent->second));
}

bool Checker::IsUnreachable(Incarnation incarnation) const {
  const Process* process = FindProcess(incarnation);
  return process == nullptr || process->is_stopped() || IsLate(process->unreachable_until());
}

bool Checker::IsSchedulerInTrouble() const {
  return is_scheduler_away_ || IsLate(scheduler_back_at_) ||
         std::ranges::any_of(processes_, [&](const auto& process) {
           return process->is_alive() && process->seat().role == Role::kScheduler &&
                  IsUnreachable(process->incarnation());
         });
}

// Promotions, transfers and missing replicas.
void Checker::CheckTransition(const View& before, const View& after) {
  CheckGivenUp(before, after);
  if (after.generation != before.generation || before.shards.empty()) return;
  const bool has_worker = std::ranges::any_of(
      after.owners, [](const MicroBatchOwner& owner) { return owner.worker != kUnknownNode; });
  if (!has_worker && !after.owners.empty()) coverage_.Note(Event::kNoWorker);
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
      coverage_.Note(Event::kTransfer);
      return true;
    };
    if (may_be_in_sync(is.primary) && was.primary != is.primary) coverage_.Note(Event::kPromotion);
    for (const PeerId& backup : is.in_sync_backups) may_be_in_sync(backup);
    for (const SyncingBackup& syncing : was.syncing_backups) {
      const bool goes_on =
          std::ranges::find(is.syncing_backups, syncing) != is.syncing_backups.end();
      if (!goes_on && !IsInSync(is, syncing.peer)) coverage_.Note(Event::kMoveUndone);
    }
  }
}

// I2: rollbacks happen only if needed, and only to an existing snapshot.
void Checker::CheckRollback(const View& before, const View& after) {
  coverage_.Note(Event::kRollback);
  if (after.restore.version != Version(0)) coverage_.Note(Event::kRollbackToStored);
  const bool is_excused =
      is_resuming_ || has_divergence_ || has_failed_restore_ || tainted_generation_.has_value();
  is_resuming_ = false;
  has_failed_restore_ = false;
  const auto is_lost = [&](const PeerId& peer) {
    const Process* process = FindProcess(peer.incarnation);
    return process == nullptr || IsDisturbed(*process);
  };
  const bool has_cause = std::ranges::any_of(before.shards, [&](const ShardPlacement& placement) {
    return is_lost(placement.primary) && std::ranges::all_of(placement.in_sync_backups, is_lost);
  });
  if (!is_excused && !has_cause && !before.shards.empty()) {
    Fail("I2: a rollback although every shard has an undisturbed replica in sync");
  }
}

// P27, P33: no living, connected process that has not left is given up.
void Checker::CheckGivenUp(const View& before, const View& after) {
  for (const NodeInfo& node : before.nodes) {
    if (FindNode(after, node.node) != nullptr) continue;
    const Process* process = FindProcess(node.incarnation);
    if (process == nullptr || process->is_leaving()) continue;
    if (drained_.contains({node.role, node.rank})) continue;
    coverage_.Note(Event::kFalseSuspicion);
    if (IsDisturbed(*process) || tainted_generation_) continue;
    Fail("P27: " + process->seat().name + " is given up, though nothing kept its messages back");
  }
}

// P29: all shards' records of exactly this version, in files that are there.
void Checker::CheckManifest(const SnapshotManifest& manifest) {
  coverage_.Note(Event::kSnapshot);
  const Version version = manifest.snapshot.version;
  if (version == Version(0)) return;
  if (manifest.shards.size() != plan_.shards.shard_count()) return Fail("P29: shards are missing");
  for (uint32_t s = 0; s < manifest.shards.size(); ++s) {
    const ShardId shard(s);
    const auto* records = disk_.Find(manifest.snapshot, shard);
    const VirtualDisk::Record* record = nullptr;
    for (size_t i = 0; records != nullptr && i < records->size(); ++i) {
      if ((*records)[i].file == manifest.shards[s].file) record = &(*records)[i];
    }
    const std::string name =
        "P29: shard " + std::to_string(s) + " of snapshot " + std::to_string(version.value());
    if (record == nullptr) return Fail(name + " is in the manifest and not on the disk");
    const auto expected = reference_.ShardAt(shard, version);
    const bool is_equal =
        record->parameters.size() == expected.size() &&
        std::memcmp(record->parameters.data(), expected.data(), expected.size_bytes()) == 0 &&
        reference_.HashOfState(record->state) == reference_.StateHashAt(shard, version);
    if (!is_equal && !HasOwnBits()) return Fail(name + " differs from the serial run's");
    if (RecordHash(version, record->parameters, record->state) != manifest.shards[s].hash) {
      return Fail(name + " has another hash than its manifest says");
    }
  }
}

// P30: what this generation began from stays until the generation has completed another, or no
// server could read it.
void Checker::CheckOrigin(const SchedulerState& state) {
  const SnapshotRef& origin = state.view.restore;
  if (origin.version == Version(0) || forgotten_.contains(origin)) return;
  const bool is_there = std::ranges::any_of(state.snapshots, [&](const SnapshotManifest& kept) {
    return kept.snapshot == origin || kept.snapshot.version > origin.version;
  });
  if (!is_there) Fail("P30: the snapshot that the generation began from is dropped");
}

// No file goes that a manifest in the journal names.
void Checker::OnSnapshotDropped(const SnapshotManifest& dropped, const SchedulerState& state) {
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
