#include "scheduler/snapshots.h"

#include <fmt/format.h>

#include <utility>

namespace pando {
namespace {

// Servers that report nothing about the final version for so long have no store.
constexpr Micros kFinalSnapshotPatience = std::chrono::seconds(30);

}  // namespace

Snapshots::Snapshots(RunFacts& run, const SchedulerOptions& options)
    : run_(run),
      has_store_(!options.snapshot_dir.empty()),
      ledger_({run.plan.shards.shard_count(), run.plan.job.snapshot_keep}, run.view().generation,
              run.view().restore,
              options.state ? options.state->snapshots : std::vector<SnapshotManifest>(),
              options.state ? options.state->given_up : GivenUpSnapshots()) {}

// A report is acknowledged when its fate is in the journal. Until then another life of the
// scheduler may need it again.
void Snapshots::OnSnapshotStored(Micros now, const PeerId& from, const SnapshotStored& stored) {
  if (!run_.phase.is_running() || run_.rollback.is_pending()) return;
  SnapshotAck ack;
  for (const SnapshotStoredItem& item : stored.items) {
    if (item.shard.value() >= run_.plan.shards.shard_count()) continue;
    const bool was_given_up = ledger_.IsGivenUp(item.version);
    const SnapshotLedger::Taken taken = ledger_.OnStored(item);
    if (taken == SnapshotLedger::Taken::kComplete || ledger_.IsGivenUpForGood(item.version))
      ack.items.push_back({item.shard, item.version});
    if (taken != SnapshotLedger::Taken::kGivenUp || was_given_up) continue;
    TellFailed(now, run_.Sender(from).Name(), item.version, item.failure);
  }
  if (!ack.items.empty()) run_.outbox.Send(from, std::move(ack));
}

// A disk that stays full makes many fail in a row. Only the first makes an event.
void Snapshots::TellFailed(Micros now, const std::string& node, Version version,
                           const std::string& reason) {
  if (failed_count_++ > 0) return;
  run_.outbox.TellNotable(now, "snapshot-failed", node,
                          "there will be no snapshot of version {}: {}", version.value(), reason);
}

void Snapshots::Tick(Micros now, Step settled_below) {
  while (const std::optional<Version> ripe = ledger_.Ripe()) {
    const bool is_verified = run_.plan.job.verify_every == 0 || settled_below >= StepReading(*ripe);
    // A rollback to a snapshot without its rows would lose them.
    const bool has_rows = run_.progress.next_row() >= StepReading(*ripe);
    if (run_.rollback.is_pending() || !has_rows || !is_verified) break;
    if (Status s = run_.observer.OnSnapshotRipe(now, ledger_.MakeManifest(*ripe)); !s.ok()) {
      ledger_.GiveUp(*ripe);
      TellFailed(now, "", *ripe, s.message());
      continue;
    }
    const SnapshotManifest manifest = ledger_.Complete(*ripe);
    const EvaluationHistory& history = run_.history;
    ledger_.Prune(history.NextDue(),
                  run_.plan.job.snapshot_best ? BestFirst(history.all()) : std::vector<Version>());
    if (!run_.outbox.Commit()) return;
    run_.observer.OnSnapshot(now, manifest);
    const uint32_t failed = std::exchange(failed_count_, 0);
    const std::string text = fmt::format("version {} is stored, in generation {}", ripe->value(),
                                         run_.view().generation);
    if (failed == 0) {
      run_.outbox.Tell(now, "snapshot", "", "{}", text);
    } else {
      run_.outbox.TellNotable(now, "snapshot", "", "{}, after {} that could not be", text, failed);
    }
  }
}

bool Snapshots::IsFinalSettled(Micros now, Micros collecting_since) {
  const Version version = run_.history.final_version();
  if (!has_store_ || ledger_.IsComplete(version)) return true;
  const bool is_silent =
      !ledger_.IsKnown(version) && now - collecting_since >= kFinalSnapshotPatience;
  if (!is_silent && !ledger_.IsGivenUp(version)) return false;
  run_.outbox.TellNotable(now, "snapshot-failed", "",
                          "the run ends without a snapshot of its last version");
  return true;
}

void Snapshots::Forget(Micros now, const SnapshotRef& unreadable) {
  ledger_.Forget(unreadable);
  run_.observer.OnSnapshotForgotten(now, unreadable);
  run_.outbox.MarkChanged();
}

void Snapshots::ReportDropped(Micros now) {
  for (const SnapshotManifest& dropped : ledger_.TakeDropped())
    run_.observer.OnSnapshotDropped(now, dropped);
}

}  // namespace pando
