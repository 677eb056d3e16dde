// The scheduler's snapshots: what lanes have stored, what is complete, what is asked for (P29,
// P30).
#include <algorithm>
#include <utility>

#include "scheduler/scheduler.h"

namespace pando {
namespace {

// How far ahead a snapshot that a person asks for lies; doubled when a shard has passed it.
constexpr Micros kSnapshotLead = std::chrono::milliseconds(300);
constexpr uint32_t kSnapshotAttemptsMax = 6;
// Servers that say nothing of the final version for so long have no store.
constexpr Micros kFinalSnapshotPatience = std::chrono::seconds(30);
// A snapshot that no server can read, though none says that it is damaged, is tried so often.
constexpr uint32_t kRestoreRoundsMax = 3;
constexpr Micros kRestoreRetry = std::chrono::seconds(1);

}  // namespace

// A report is acknowledged when its fate is in the journal: until then it may have to be heard
// again, by another life of ours.
void Scheduler::OnMessageOf(Micros now, const Envelope& envelope, const SnapshotStored& stored) {
  if (!is_running() || rollback_) return;
  SnapshotAck ack;
  for (const SnapshotStoredItem& item : stored.items) {
    if (item.shard.value() >= plan_.shards.shard_count()) continue;
    const bool was_given_up = snapshots_.IsGivenUp(item.version);
    const SnapshotLedger::Taken taken = snapshots_.OnStored(item);
    if (taken == SnapshotLedger::Taken::kComplete || snapshots_.IsGivenUpForGood(item.version))
      ack.items.push_back({item.shard, item.version});
    if (taken != SnapshotLedger::Taken::kGivenUp || was_given_up) continue;
    TellSnapshotFailed(now, members_.Find(envelope.sender.incarnation)->Name(), item.version,
                       item.failure);
  }
  if (!ack.items.empty()) Send(envelope.sender, std::move(ack));
}

// Of many in a row, which a disk that stays full makes, the first is told.
void Scheduler::TellSnapshotFailed(Micros now, const std::string& node, Version version,
                                   const std::string& reason) {
  if (failed_snapshots_++ > 0) return;
  Tell(now, "snapshot-failed", node,
       "there will be no snapshot of version " + std::to_string(version.value()) + ": " + reason,
       /*is_notable=*/true);
}

void Scheduler::CompleteSnapshots(Micros now) {
  while (const std::optional<Version> ripe = snapshots_.Ripe()) {
    const bool is_verified =
        plan_.job.verify_every == 0 || verified_.settled_below() >= StepReading(*ripe);
    const bool has_rows = next_row_ >= StepReading(*ripe);  // else a rollback would lose some
    if (rollback_ || !has_rows || !is_verified) break;
    if (Status s = observer_.OnSnapshotRipe(now, snapshots_.ManifestOf(*ripe)); !s.ok()) {
      snapshots_.GiveUp(*ripe);
      TellSnapshotFailed(now, "", *ripe, s.message());
      continue;
    }
    const SnapshotManifest manifest = snapshots_.Complete(*ripe);
    snapshots_.Prune(plan_.NextEvaluation(evaluated_),
                     plan_.job.snapshot_best ? BestFirst(evaluations_) : std::vector<Version>());
    if (!Commit()) return;
    observer_.OnSnapshot(now, manifest);
    const uint32_t failed = std::exchange(failed_snapshots_, 0);
    Tell(now, "snapshot", "",
         "version " + std::to_string(ripe->value()) + " is stored, in generation " +
             std::to_string(view_.generation) +
             (failed > 0 ? ", after " + std::to_string(failed) + " that could not be" : ""),
         /*is_notable=*/failed > 0);
  }
}

// The one that a person asked for: all shards must hear of it before they come to its version.
void Scheduler::WatchSnapshotRequest(Micros now) {
  if (!snapshot_request_) return;
  const Version version = snapshot_request_->version;
  const auto conclude = [&](CommandOutcome outcome, const std::string& text) {
    for (auto& [incarnation, command] : commands_) {
      if (command.command.kind == CommandKind::kSnapshot) Conclude(command, outcome, text);
    }
    snapshot_request_.reset();
  };
  if (snapshots_.IsComplete(version))
    return conclude(CommandOutcome::kDone, "version " + std::to_string(version.value()));
  const bool was_missed = now >= snapshot_request_->patience_until && committed_ > version &&
                          !plan_.IsSnapshotDue(version);
  if (!snapshots_.IsGivenUp(version) && !was_missed) return;
  if (snapshot_request_->attempts == kSnapshotAttemptsMax)
    return conclude(CommandOutcome::kRefused, "the servers could not store version " +
                                                  std::to_string(version.value()) +
                                                  "; the scheduler's events say why");
  snapshots_.GiveUp(version);
  AskForSnapshot(now, snapshot_request_->attempts + 1);
}

void Scheduler::AskForSnapshot(Micros now, uint32_t attempt) {
  const Micros lead = kSnapshotLead * (1 << (attempt - 1));
  const uint64_t ahead = committed_.value() + 1 + pace_.StepsWithin(lead);
  const Version version(std::min(ahead, ScalarsEnd().value()));
  snapshot_request_ = SnapshotRequest{version, attempt, now + 2 * lead + std::chrono::seconds(5)};
  repeat_at_ = now;
}

// What this generation began from cannot be read by this server: a folder that is not mounted, say,
// is its own trouble, and others are asked to restore the same. What is damaged, or nobody can
// read, is given up: the next generation begins from an older snapshot.
void Scheduler::OnMessageOf(Micros now, const Envelope& envelope, const RestoreFailed& failed) {
  if (!is_running() || failed.snapshot != view_.restore || failed.snapshot == SnapshotRef{}) return;
  const Member& server = *members_.Find(envelope.sender.incarnation);
  if (unreadable_.snapshot != failed.snapshot) unreadable_ = {.snapshot = failed.snapshot};
  if (!unreadable_.servers.insert(server.peer.node).second) return;  // repeated
  const std::string text = server.Name() + " on " + server.registration.host +
                           " cannot restore version " +
                           std::to_string(failed.snapshot.version.value()) + ": " + failed.text;
  const bool has_other = !CanNobodyRestore(now);
  if (!has_other) ++unreadable_.rounds;
  const bool is_lost = failed.is_corrupt || unreadable_.rounds >= kRestoreRoundsMax;
  if (is_lost) {
    Tell(now, "snapshot-unreadable", server.Name(),
         text + "; it will not be used again, and its files are left as they are",
         /*is_notable=*/true);
    snapshots_.Forget(failed.snapshot);
    observer_.OnSnapshotForgotten(now, failed.snapshot);
    has_changed_ = true;
  } else {
    Tell(now, "restore-failed", server.Name(), text, /*is_notable=*/true);
  }
  PlanRollback(now, text);
  if (!is_lost && !has_other) rollback_->not_before = now + kRestoreRetry;
}

bool Scheduler::CanNobodyRestore(Micros now) const {
  return std::ranges::all_of(members_.Servers(now), [&](const PlacementServer& server) {
    return server.is_leaving || unreadable_.servers.contains(server.peer.node);
  });
}

// Who gets the shards when a generation begins from `restore`: those that have not failed to read
// it, or everybody once more where all have.
std::vector<PlacementServer> Scheduler::RestoringServers(Micros now, const SnapshotRef& restore) {
  std::vector<PlacementServer> servers = members_.Servers(now);
  if (unreadable_.snapshot != restore) return servers;
  if (CanNobodyRestore(now)) unreadable_.servers.clear();
  std::erase_if(servers, [&](const PlacementServer& server) {
    return unreadable_.servers.contains(server.peer.node);
  });
  return servers;
}

void Scheduler::OnMessageOf(Micros, const Envelope& envelope, const SnapshotAtAck& ack) {
  Version& asked =
      members_.Find(envelope.sender.incarnation)->snapshots_asked[envelope.sender.lane];
  asked = std::max(asked, ack.version);
}

bool Scheduler::IsFinalSnapshotSettled(Micros now) {
  const Version version = final_version_;
  if (options_.snapshot_dir.empty() || snapshots_.IsComplete(version)) return true;
  const bool is_silent =
      !snapshots_.IsKnown(version) && now - collecting_since_ >= kFinalSnapshotPatience;
  if (!is_silent && !snapshots_.IsGivenUp(version)) return false;
  Tell(now, "snapshot-failed", "", "the run ends without a snapshot of its last version",
       /*is_notable=*/true);
  return true;
}

}  // namespace pando
