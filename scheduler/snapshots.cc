#include "scheduler/snapshots.h"

#include <utility>

namespace pando {
namespace {

// Servers that report nothing about the final version for so long have no store.
constexpr Micros kFinalSnapshotPatience = std::chrono::seconds(30);

}  // namespace

Snapshots::Snapshots(const JobPlan& plan, bool has_store,
                     const std::optional<SchedulerState>& state, const Parts& parts)
    : plan_(plan),
      has_store_(has_store),
      parts_(parts),
      ledger_({plan.shards.shard_count(), plan.job.snapshot_keep}, parts.view.generation,
              parts.view.restore, state ? state->snapshots : std::vector<SnapshotManifest>(),
              state ? state->given_up : GivenUpSnapshots()) {}

// A report is acknowledged when its fate is in the journal. Until then another life of the
// scheduler may need it again.
void Snapshots::OnSnapshotStored(Micros now, const PeerId& from, const SnapshotStored& stored) {
  if (!parts_.phase.is_running() || parts_.rollback.is_pending()) return;
  SnapshotAck ack;
  for (const SnapshotStoredItem& item : stored.items) {
    if (item.shard.value() >= plan_.shards.shard_count()) continue;
    const bool was_given_up = ledger_.IsGivenUp(item.version);
    const SnapshotLedger::Taken taken = ledger_.OnStored(item);
    if (taken == SnapshotLedger::Taken::kComplete || ledger_.IsGivenUpForGood(item.version))
      ack.items.push_back({item.shard, item.version});
    if (taken != SnapshotLedger::Taken::kGivenUp || was_given_up) continue;
    TellFailed(now, parts_.members.Find(from.incarnation)->Name(), item.version, item.failure);
  }
  if (!ack.items.empty()) parts_.outbox.Send(from, std::move(ack));
}

// A disk that stays full makes many fail in a row. Only the first makes an event.
void Snapshots::TellFailed(Micros now, const std::string& node, Version version,
                           const std::string& reason) {
  if (failed_count_++ > 0) return;
  parts_.outbox.Tell(
      now, "snapshot-failed", node,
      "there will be no snapshot of version " + std::to_string(version.value()) + ": " + reason,
      /*is_notable=*/true);
}

void Snapshots::Tick(Micros now, Step settled_below) {
  while (const std::optional<Version> ripe = ledger_.Ripe()) {
    const bool is_verified = plan_.job.verify_every == 0 || settled_below >= StepReading(*ripe);
    // A rollback to a snapshot without its rows would lose them.
    const bool has_rows = parts_.progress.next_row() >= StepReading(*ripe);
    if (parts_.rollback.is_pending() || !has_rows || !is_verified) break;
    if (Status s = parts_.observer.OnSnapshotRipe(now, ledger_.MakeManifest(*ripe)); !s.ok()) {
      ledger_.GiveUp(*ripe);
      TellFailed(now, "", *ripe, s.message());
      continue;
    }
    const SnapshotManifest manifest = ledger_.Complete(*ripe);
    const EvaluationHistory& history = parts_.history;
    ledger_.Prune(history.NextDue(),
                  plan_.job.snapshot_best ? BestFirst(history.all()) : std::vector<Version>());
    if (!parts_.outbox.Commit()) return;
    parts_.observer.OnSnapshot(now, manifest);
    const uint32_t failed = std::exchange(failed_count_, 0);
    parts_.outbox.Tell(
        now, "snapshot", "",
        "version " + std::to_string(ripe->value()) + " is stored, in generation " +
            std::to_string(parts_.view.generation) +
            (failed > 0 ? ", after " + std::to_string(failed) + " that could not be" : ""),
        /*is_notable=*/failed > 0);
  }
}

bool Snapshots::IsFinalSettled(Micros now, Micros collecting_since) {
  const Version version = parts_.history.final_version();
  if (!has_store_ || ledger_.IsComplete(version)) return true;
  const bool is_silent =
      !ledger_.IsKnown(version) && now - collecting_since >= kFinalSnapshotPatience;
  if (!is_silent && !ledger_.IsGivenUp(version)) return false;
  parts_.outbox.Tell(now, "snapshot-failed", "",
                     "the run ends without a snapshot of its last version",
                     /*is_notable=*/true);
  return true;
}

void Snapshots::Forget(Micros now, const SnapshotRef& unreadable) {
  ledger_.Forget(unreadable);
  parts_.observer.OnSnapshotForgotten(now, unreadable);
  parts_.outbox.MarkChanged();
}

void Snapshots::ReportDropped(Micros now) {
  for (const SnapshotManifest& dropped : ledger_.TakeDropped())
    parts_.observer.OnSnapshotDropped(now, dropped);
}

}  // namespace pando
