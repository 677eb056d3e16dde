// Snapshots completes the snapshots whose shards all lanes have stored (P29, P30).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scheduler/journal.h"
#include "scheduler/members/run_members.h"

namespace pando {

// SnapshotLedger keeps which shard has stored which version, and decides which snapshots are
// complete and which are kept. Snapshots owns it.
//
// clang-format off
//   a version's snapshot | entered when                                | a shard's report
//   ---------------------+---------------------------------------------+--------------------------
//   pending              | a shard has stored it                       | kept, not acknowledged
//   complete             | all have, and the scheduler completes it    | acknowledged
//   given up             | a shard cannot store it, its replicas have  | acknowledged and its file
//                        | different hashes, a file has another one,   | dropped once journaled
//                        | or a newer one is complete                  |
// clang-format on
class SnapshotLedger {
 public:
  struct Options {
    uint32_t shard_count = 0;
    uint32_t keep = 2;  // how many to keep, besides the best and those for a rollback
  };
  // `origin`: the snapshot that this generation began from. `complete` and `given_up`: those of
  // earlier lives of the scheduler.
  SnapshotLedger(const Options& options, uint32_t generation, SnapshotRef origin,
                 std::vector<SnapshotManifest> complete, const GivenUpSnapshots& given_up);

  enum class Taken { kPending, kComplete, kGivenUp };
  // Adds the report of `by`.  Returns the version's state now. A failure, or a hash that differs
  // from an earlier report's, gives the version up. A report without a file is a backup's.
  Taken OnStored(const SnapshotStoredItem& item, const std::string& by = "");
  // Returns the lowest version that every shard has stored and that is not complete yet.
  std::optional<Version> Ripe() const;
  // REQUIRES: version == *Ripe().
  SnapshotManifest MakeManifest(Version version) const;
  // Makes the ripe snapshot complete, and gives up older pending ones.  REQUIRES: as above.
  const SnapshotManifest& MarkComplete(Version version);
  // Drops the snapshots that are not needed. A rollback needs one that is not beyond
  // `next_evaluation`. The first of `best_first` that has a snapshot is kept.
  void Prune(Version next_evaluation, const std::vector<Version>& best_first = {});
  void GiveUp(Version version);
  void DiscardAfter(Version version);   // later ones come from a wrong gradient
  void Forget(SnapshotRef unreadable);  // without dropping its files
  // Returns whether this generation has completed the version's snapshot, or began from it.
  bool IsComplete(Version version) const;
  bool IsGivenUp(Version version) const;
  // Returns whether some shard of this version is stored, or its snapshot is complete or given up.
  bool IsKnown(Version version) const;
  // Returns whether there is room to keep a report of a version that is not due.
  bool MayBegin(Version version) const;
  // Returns the process that reported this pending shard first; empty if none did.
  std::string Reporter(Version version, ShardId shard) const;
  // Returns whether two processes have reported this shard.
  bool IsCompared(Version version, ShardId shard) const;
  // Returns the newest complete snapshot that is not beyond `at_most`, else that of version 0.
  SnapshotRef RestorePoint(Version at_most) const;
  void StartGeneration(uint32_t generation, SnapshotRef origin);

  const std::vector<SnapshotManifest>& complete() const { return complete_; }
  GivenUpSnapshots given_up() const;
  // Is called when the journal has given_up() and complete(). Giving up alone does not write the
  // journal: on a full disk, which gives up many versions, the run would wait for it.
  void OnJournaled();
  // Returns whether the journal has this version as given up.
  bool IsGivenUpForGood(Version version) const;
  // Returns the snapshots that were dropped since the last call. They are out of the journal too:
  // else another life of the scheduler might complete a snapshot that this one gave up.
  std::vector<SnapshotManifest> TakeDropped();

 private:
  struct Report {
    StoredShard shard;  // without a file if only a backup has reported it
    std::string by;
    bool is_compared = false;
  };
  using Pending = std::vector<std::optional<Report>>;
  const Report* FindReport(Version version, ShardId shard) const;
  static bool IsRipe(const Pending& shards);
  bool IsWanted(const std::string& file) const;
  void DropPending(Version version);
  // Returns the manifest of the shards of this version that are stored.
  SnapshotManifest MakeManifest(Version version, const Pending& pending) const;

  Options options_;
  uint32_t generation_;
  SnapshotRef origin_;
  std::vector<SnapshotManifest> complete_;  // ascending by (version, generation)
  std::map<Version, Pending> pending_;      // the pending versions of this generation
  static constexpr size_t kGivenUpNamedMax = 64;
  static constexpr size_t kPendingMax = 16;  // bounds the pending versions that are not due
  // The versions of this generation that are given up: the newest ones, and all below a mark.
  std::set<Version> given_up_;
  Version given_up_below_;
  std::set<Version> unsaved_;              // given up, but not yet so in the journal
  std::vector<SnapshotManifest> dropped_;  // dropped, but still in the journal
  std::vector<SnapshotManifest> dropped_for_good_;
};

class Snapshots : SchedulerPart {
 public:
  Snapshots(const SchedulerOptions& options, const SchedulerPart& part, RunObserver& observer,
            const EvaluationHistory& history, const RunProgress& progress, const Members& members);

  void OnSnapshotStored(Micros now, const PeerId& from, const SnapshotStored& stored);
  // Completes the snapshots that are ripe. Steps below `settled_below` are verified (P41).
  void Tick(Micros now, Step settled_below);
  // Returns whether the snapshot of the run's last version is complete or will never be.
  bool IsFinalSettled(Micros now, Micros collecting_since);

  // Handles a server that cannot read the snapshot that this generation began from. If the snapshot
  // is damaged, or no server can read it, the next generation begins from an older one. Otherwise
  // it begins from the same one, on other servers.
  void OnRestoreFailed(Micros now, const PeerId& from, const RestoreFailed& failed);
  // Is called when all shards have committed this version.
  void OnCommitted(Version committed);
  // Returns the servers that get shards when a generation begins from `restore`: those that have
  // not failed to read it, or all again if all have failed. `avoided` ones get no new work.
  std::vector<PlacementServer> RestoringServers(const SnapshotRef& restore,
                                                const std::set<NodeId>& avoided);
  // Reports the dropped snapshots to the observer.
  void ReportDropped(Micros now);

  // Accepts reports of this version, which all lanes are asked to store besides the due ones.
  void Expect(Version version) {
    asked_.insert(version);
    if (asked_.size() > kAskedMax) asked_.erase(asked_.begin());
  }
  bool has_store() const { return has_store_; }
  SnapshotLedger& ledger() { return ledger_; }
  const SnapshotLedger& ledger() const { return ledger_; }

 private:
  static constexpr size_t kAskedMax = 64;
  struct Unreadable {          // cleared when steps are made
    SnapshotRef snapshot;      // the one that this generation began from
    std::set<NodeId> servers;  // those that could not restore it
    uint32_t rounds = 0;       // how often no server could restore it
  };

  bool IsTooEarly(Version version) const;
  bool IsExpected(const SnapshotStoredItem& item) const;
  void TellFailed(Micros now, const std::string& node, Version version, const std::string& reason);
  bool IsCompared(Version version) const;
  bool HaveAllFailed() const;

  RunObserver& observer_;
  const EvaluationHistory& history_;
  const RunProgress& progress_;
  const Members& members_;
  const bool has_store_;
  SnapshotLedger ledger_;
  std::set<Version> asked_;
  Unreadable unreadable_;
  uint32_t failed_count_ = 0;  // failed snapshots since the last complete one
  std::optional<std::pair<Version, Micros>> uncompared_;  // the ripe version, and since when
};

}  // namespace pando
