#include "scheduler/snapshots.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/check.h"

namespace pando {
namespace {

// If servers report nothing about the final version for this time, they store nothing.
constexpr Micros kFinalSnapshotPatience = std::chrono::seconds(30);
// A ripe snapshot waits this long for backups' hashes. A replica that became a backup after it had
// made the version reports none.
constexpr Micros kComparePatience = std::chrono::seconds(2);
// A snapshot that no server can read, although none reports damage, is tried this many times.
constexpr uint32_t kRestoreRoundsMax = 3;
constexpr Micros kRestoreRetry = std::chrono::seconds(1);

}  // namespace

SnapshotLedger::SnapshotLedger(const Options& options, uint32_t generation, SnapshotRef origin,
                               std::vector<SnapshotManifest> complete,
                               const GivenUpSnapshots& given_up)
    : options_(options),
      generation_(generation),
      origin_(origin),
      complete_(std::move(complete)),
      given_up_(given_up.versions.begin(), given_up.versions.end()),
      given_up_below_(given_up.below) {}

SnapshotLedger::Taken SnapshotLedger::OnStored(const SnapshotStoredItem& item,
                                               const std::string& by) {
  const bool is_complete = IsComplete(item.version);
  if (is_complete || IsGivenUpForGood(item.version)) {
    if (!item.file.empty() && !IsWanted(item.file)) {
      Pending alone(options_.shard_count);
      alone[item.shard.value()] = Report{{item.hash, item.file}, by};
      dropped_for_good_.push_back(MakeManifest(item.version, alone));
    }
    return is_complete ? Taken::kComplete : Taken::kGivenUp;
  }
  if (IsGivenUp(item.version)) return Taken::kGivenUp;  // unacknowledged, so it is repeated
  const Report* known = FindReport(item.version, item.shard);
  const bool differs = known != nullptr && known->shard.hash != item.hash;
  if (!item.failure.empty() || differs) {
    GiveUp(item.version);
    return Taken::kGivenUp;
  }
  Pending& pending = pending_[item.version];
  pending.resize(options_.shard_count);
  std::optional<Report>& report = pending[item.shard.value()];
  if (!report) report = Report{{item.hash, item.file}, by};
  if (report->shard.file.empty()) report->shard = {item.hash, item.file};
  report->is_compared |= report->by != by;
  return Taken::kPending;
}

const SnapshotLedger::Report* SnapshotLedger::FindReport(Version version, ShardId shard) const {
  const auto it = pending_.find(version);
  if (it == pending_.end() || !it->second[shard.value()]) return nullptr;
  return &*it->second[shard.value()];
}

std::string SnapshotLedger::Reporter(Version version, ShardId shard) const {
  const Report* report = FindReport(version, shard);
  return report == nullptr ? "" : report->by;
}

bool SnapshotLedger::IsCompared(Version version, ShardId shard) const {
  const Report* report = FindReport(version, shard);
  return report != nullptr && report->is_compared;
}

bool SnapshotLedger::IsRipe(const Pending& shards) {
  return std::ranges::all_of(
      shards, [](const auto& report) { return report && !report->shard.file.empty(); });
}

std::optional<Version> SnapshotLedger::Ripe() const {
  for (const auto& [version, pending] : pending_) {
    if (IsRipe(pending)) return version;
  }
  return std::nullopt;
}

SnapshotManifest SnapshotLedger::MakeManifest(Version version) const {
  const auto ripe = pending_.find(version);
  PANDO_CHECK(ripe != pending_.end() && IsRipe(ripe->second));
  return MakeManifest(version, ripe->second);
}

const SnapshotManifest& SnapshotLedger::MarkComplete(Version version) {
  SnapshotManifest manifest = MakeManifest(version);
  pending_.erase(version);
  while (!pending_.empty() && pending_.begin()->first < version) GiveUp(pending_.begin()->first);
  const auto at = std::ranges::upper_bound(complete_, version, {},
                                           [](const auto& m) { return m.snapshot.version; });
  return *complete_.insert(at, std::move(manifest));
}

void SnapshotLedger::Prune(Version next_evaluation, const std::vector<Version>& best_first) {
  const SnapshotRef needed = RestorePoint(next_evaluation);
  const auto is_stored = [&](Version version) {
    return std::ranges::any_of(complete_,
                               [&](const auto& m) { return m.snapshot.version == version; });
  };
  const auto best = std::ranges::find_if(best_first, is_stored);
  bool has_best = best == best_first.end();
  const bool has_own = std::ranges::any_of(
      complete_, [&](const auto& m) { return m.snapshot.generation == generation_; });
  std::vector<SnapshotManifest> kept;
  std::set<Version> newest;
  for (auto it = complete_.rbegin(); it != complete_.rend(); ++it) {
    const SnapshotRef& snapshot = it->snapshot;
    const bool is_origin = !has_own && snapshot == origin_;  // P30
    const bool is_newest = newest.size() < options_.keep && newest.insert(snapshot.version).second;
    const bool is_best = !has_best && snapshot.version == *best;
    has_best |= is_best;
    if (is_newest || is_origin || is_best || snapshot == needed) {
      kept.push_back(std::move(*it));
    } else {
      dropped_.push_back(std::move(*it));
    }
  }
  std::ranges::reverse(kept);
  complete_ = std::move(kept);
}

void SnapshotLedger::GiveUp(Version version) {
  unsaved_.insert(version);
  if (version >= given_up_below_) given_up_.insert(version);
  while (given_up_.size() > kGivenUpNamedMax) {
    given_up_below_ = Version(given_up_.begin()->value() + 1);
    given_up_.erase(given_up_.begin());
  }
  DropPending(version);
  while (!pending_.empty() && pending_.begin()->first < given_up_below_)
    DropPending(pending_.begin()->first);
}

void SnapshotLedger::DropPending(Version version) {
  const auto it = pending_.find(version);
  if (it == pending_.end()) return;
  dropped_.push_back(MakeManifest(version, it->second));
  pending_.erase(it);
}

void SnapshotLedger::DiscardAfter(Version version) {
  std::erase_if(complete_, [&](const SnapshotManifest& manifest) {
    const bool is_later = manifest.snapshot.version > version;
    if (is_later) dropped_.push_back(manifest);
    return is_later;
  });
}

void SnapshotLedger::Forget(SnapshotRef unreadable) {
  std::erase_if(complete_, [&](const auto& m) { return m.snapshot == unreadable; });
}

SnapshotManifest SnapshotLedger::MakeManifest(Version version, const Pending& pending) const {
  SnapshotManifest manifest{.snapshot = {generation_, version}, .shards = {}};
  for (const std::optional<Report>& report : pending)
    manifest.shards.push_back(report ? report->shard : StoredShard{});
  return manifest;
}

// Returns whether a kept snapshot uses the file, which may hold several shards.
bool SnapshotLedger::IsWanted(const std::string& file) const {
  for (const SnapshotManifest& manifest : complete_) {
    if (std::ranges::find(manifest.shards, file, &StoredShard::file) != manifest.shards.end())
      return true;
  }
  return false;
}

bool SnapshotLedger::IsComplete(Version version) const {
  return std::ranges::any_of(complete_, [&](const SnapshotManifest& manifest) {
    const SnapshotRef& snapshot = manifest.snapshot;
    const bool is_ours = snapshot.generation == generation_ || snapshot == origin_;
    return is_ours && snapshot.version == version;
  });
}

// A snapshot that was complete but is no longer kept counts as given up too.
bool SnapshotLedger::IsGivenUp(Version version) const {
  if (version < given_up_below_ || given_up_.contains(version)) return true;
  return !IsComplete(version) && std::ranges::any_of(complete_, [&](const auto& manifest) {
    return manifest.snapshot.generation == generation_ && manifest.snapshot.version > version;
  });
}

bool SnapshotLedger::MayBegin(Version version) const {
  return pending_.size() < kPendingMax || IsKnown(version);
}

bool SnapshotLedger::IsKnown(Version version) const {
  const auto it = pending_.find(version);
  const auto has_file = [](const auto& report) { return report && !report->shard.file.empty(); };
  const bool is_stored = it != pending_.end() && std::ranges::any_of(it->second, has_file);
  return is_stored || IsGivenUp(version) || IsComplete(version);
}

SnapshotRef SnapshotLedger::RestorePoint(Version at_most) const {
  for (auto it = complete_.rbegin(); it != complete_.rend(); ++it) {
    if (it->snapshot.version <= at_most) return it->snapshot;
  }
  return {};
}

void SnapshotLedger::StartGeneration(uint32_t generation, SnapshotRef origin) {
  while (!pending_.empty()) GiveUp(pending_.begin()->first);
  given_up_.clear();
  given_up_below_ = Version(0);
  generation_ = generation;
  origin_ = origin;
}

GivenUpSnapshots SnapshotLedger::given_up() const {
  return {given_up_below_, {given_up_.begin(), given_up_.end()}};
}

void SnapshotLedger::OnJournaled() {
  unsaved_.clear();
  std::ranges::move(std::exchange(dropped_, {}), std::back_inserter(dropped_for_good_));
}

bool SnapshotLedger::IsGivenUpForGood(Version version) const {
  return IsGivenUp(version) && !unsaved_.contains(version);
}

std::vector<SnapshotManifest> SnapshotLedger::TakeDropped() {
  return std::exchange(dropped_for_good_, {});
}

Snapshots::Snapshots(const SchedulerOptions& options, const SchedulerPart& part,
                     RunObserver& observer, const EvaluationHistory& history,
                     const RunProgress& progress, const Members& members)
    : SchedulerPart(part),
      observer_(observer),
      history_(history),
      progress_(progress),
      members_(members),
      has_store_(!options.snapshot_dir.empty()),
      ledger_({plan_.shards.shard_count(), plan_.job.snapshot_keep}, views_.view().generation,
              views_.view().restore,
              options.state ? options.state->snapshots : std::vector<SnapshotManifest>(),
              options.state ? options.state->given_up : GivenUpSnapshots()) {}

// A report is acknowledged when the journal has its result. Until then another life of the
// scheduler may need the report again.
void Snapshots::OnSnapshotStored(Micros now, const PeerId& from, const SnapshotStored& stored) {
  if (!phase_.is_running() || phase_.is_rolling_back()) return;
  SnapshotAck ack;
  for (const SnapshotStoredItem& item : stored.items) {
    if (item.shard.value() >= plan_.shards.shard_count() || IsTooEarly(item.version)) continue;
    if (!IsExpected(item)) {  // an earlier life may have asked for it: tell the lane to forget it
      ack.items.push_back({item.shard, item.version});
      continue;
    }
    const bool was_given_up = ledger_.IsGivenUp(item.version);
    const std::string before = ledger_.Reporter(item.version, item.shard);
    const std::string name = members_.Sender(from).Name();
    const SnapshotLedger::Taken taken = ledger_.OnStored(item, name);
    if (taken == SnapshotLedger::Taken::kComplete || ledger_.IsGivenUpForGood(item.version))
      ack.items.push_back({item.shard, item.version});
    if (taken != SnapshotLedger::Taken::kGivenUp || was_given_up) continue;
    TellFailed(now, name, item.version,
               item.failure.empty() ? fmt::format("{} and {} have different bits of shard {}",
                                                  before, name, item.shard.value())
                                    : item.failure);
  }
  if (!ack.items.empty()) outbox_.Send(from, std::move(ack));
}

// P46. Returns whether the scheduler does not know yet that a shard can have stored the version.
// The lane repeats its report.
bool Snapshots::IsTooEarly(Version version) const {
  const Version next = VersionMadeBy(plan_.steps.LastStepToSend(progress_.committed()));
  return version > std::min(next, history_.final_version());
}

// P46. A single server must not give up a version that is neither due nor asked for, nor make many
// such versions wait for other shards.
bool Snapshots::IsExpected(const SnapshotStoredItem& item) const {
  if (plan_.IsSnapshotDue(item.version) || asked_.contains(item.version)) return true;
  return item.failure.empty() && ledger_.MayBegin(item.version);
}

// A full disk makes many snapshots fail in a row. Only the first makes an event.
void Snapshots::TellFailed(Micros now, const std::string& node, Version version,
                           const std::string& reason) {
  if (failed_count_++ > 0) return;
  outbox_.TellNotable(now, "snapshot-failed", node, "there will be no snapshot of version {}: {}",
                      version.value(), reason);
}

void Snapshots::Tick(Micros now, Step settled_below) {
  while (const std::optional<Version> ripe = ledger_.Ripe()) {
    const bool is_verified = plan_.job.verify_every == 0 || settled_below >= StepUpdating(*ripe);
    // A rollback to a snapshot without its rows would lose them.
    const bool has_rows = progress_.next_row() >= StepUpdating(*ripe);
    if (phase_.is_rolling_back() || !has_rows || !is_verified) break;
    const auto check = observer_.OnSnapshotRipe(now, ledger_.MakeManifest(*ripe));
    if (!check) break;
    if (!check->status.ok()) {
      const std::string reporter = ledger_.Reporter(*ripe, check->shard);
      ledger_.GiveUp(*ripe);
      TellFailed(now, reporter, *ripe, check->status.message());
      continue;
    }
    const bool is_compared = IsCompared(*ripe);
    if (!uncompared_ || uncompared_->first != *ripe) uncompared_ = {*ripe, now};
    if (!is_compared && now - uncompared_->second < kComparePatience) break;
    const SnapshotManifest manifest = ledger_.MarkComplete(*ripe);
    if (is_compared)
      ledger_.Prune(history_.NextDue(), plan_.job.snapshot_best
                                            ? BestFirst(plan_.job, history_.all())
                                            : std::vector<Version>());
    if (!outbox_.Commit()) return;
    observer_.OnSnapshot(now, manifest);
    const uint32_t failed = std::exchange(failed_count_, 0);
    const std::string text = fmt::format("the snapshot of version {} is stored (generation {})",
                                         ripe->value(), views_.view().generation);
    if (failed == 0) {
      outbox_.Tell(now, "snapshot", "", "{}", text);
    } else {
      outbox_.TellNotable(now, "snapshot", "", "{}; {} before it could not be stored", text,
                          failed);
    }
  }
}

// Returns whether an in-sync backup has reported the hash of each shard that has one.
bool Snapshots::IsCompared(Version version) const {
  const auto& shards = views_.view().shards;
  for (uint32_t s = 0; s < shards.size(); ++s) {
    if (!shards[s].in_sync_backups.empty() && !ledger_.IsCompared(version, ShardId(s)))
      return false;
  }
  return true;
}

bool Snapshots::IsFinalSettled(Micros now, Micros collecting_since) {
  const Version version = history_.final_version();
  if (!has_store_ || ledger_.IsComplete(version)) return true;
  const bool is_silent =
      !ledger_.IsKnown(version) && now - collecting_since >= kFinalSnapshotPatience;
  if (!is_silent && !ledger_.IsGivenUp(version)) return false;
  outbox_.TellNotable(now, "snapshot-failed", "",
                      "the run ends without a snapshot of its last version");
  return true;
}

void Snapshots::ReportDropped(Micros now) {
  for (const SnapshotManifest& dropped : ledger_.TakeDropped())
    observer_.OnSnapshotDropped(now, dropped);
}

// ---- snapshots that cannot be read -------------------------------------------------------------

void Snapshots::OnRestoreFailed(Micros now, const PeerId& from, const RestoreFailed& failed) {
  const SnapshotRef restore = views_.view().restore;
  if (!phase_.is_running() || failed.snapshot != restore || restore == SnapshotRef{}) return;
  // P46: all shards were restored before the generation's first commit, so the report is false.
  if (progress_.committed() > restore.version) return;
  const Member& server = members_.Sender(from);
  if (unreadable_.snapshot != restore) unreadable_ = {.snapshot = restore};
  if (!unreadable_.servers.insert(server.peer.node).second) return;  // repeated
  const std::string text =
      fmt::format("{} on {} cannot restore version {}: {}", server.Name(), server.registration.host,
                  restore.version.value(), failed.text);
  const bool has_other = !HaveAllFailed();
  if (!has_other) ++unreadable_.rounds;
  const bool is_lost = failed.is_corrupt || unreadable_.rounds >= kRestoreRoundsMax;
  if (is_lost) {
    outbox_.TellNotable(now, "snapshot-unreadable", server.Name(),
                        "{}; it will not be used again, and its files are left as they are", text);
    ledger_.Forget(restore);
    observer_.OnSnapshotForgotten(now, restore);
    outbox_.MarkChanged();
  } else {
    outbox_.TellNotable(now, "restore-failed", server.Name(), "{}", text);
  }
  phase_.PlanRollback(now, text);
  if (!is_lost && !has_other) phase_.DelayRollback(now + kRestoreRetry);
}

void Snapshots::OnCommitted(Version committed) {
  if (committed > views_.view().restore.version) unreadable_ = {};
}

bool Snapshots::HaveAllFailed() const {
  return std::ranges::all_of(members_.Servers({}), [&](const PlacementServer& server) {
    return server.is_leaving || unreadable_.servers.contains(server.peer.node);
  });
}

std::vector<PlacementServer> Snapshots::RestoringServers(const SnapshotRef& restore,
                                                         const std::set<NodeId>& avoided) {
  std::vector<PlacementServer> servers = members_.Servers(avoided);
  if (unreadable_.snapshot != restore) return servers;
  if (HaveAllFailed()) unreadable_.servers.clear();
  std::erase_if(servers, [&](const PlacementServer& server) {
    return unreadable_.servers.contains(server.peer.node);
  });
  return servers;
}

}  // namespace pando
