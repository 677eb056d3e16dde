// Replication is a primary's side of replication. It sends backups roots (P8, P13, P22) and images
// (P20, P24), takes their acknowledgements, decides when a version may be committed, and repeats
// unanswered messages. It is a part of the lane; server/following.h is the backup's side.
//
// clang-format off
//   a primary's backup | acks required | what it is sent
//   -------------------+---------------+------------------------------------------------------------
//   in sync            | yes           | every root; in a new view the uncommitted one again (P22)
//   syncing, image not | no            | the image, once the newest version is committed; meanwhile
//   over               |               | at most two versions are made (I6)
//   syncing, behind    | no            | the roots since the image; the same limit holds
//   syncing, has all   | yes           | every root; Synced goes to the scheduler (P24)
//   versions made      |               |
// clang-format on
//
// A promoted primary first asks its in-sync backups whether one has made the next version from the
// dead primary's last root. It seals no step before all have answered (P22).
//
// Threads: none. Owns: the state of each backup. Invariants I2, I6.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "server/lane_part.h"
#include "server/outgoing_transfer.h"
#include "server/progress_report.h"
#include "server/replication/contradictions.h"
#include "server/replication/inquiry.h"
#include "server/reports.h"

namespace pando {

// BackupClock decides when a primary repeats messages that a backup has not answered (P10), and
// which backups are silent (P23). Replication keeps one Debt for each backup of each shard.
class BackupClock {
 public:
  // The answers that one backup of one shard owes.
  struct Debt {
    std::optional<Micros> since;  // when the wait for answers began; none: it owes none
    Micros repeat_at = kNever;
    Micros repeat_interval{0};
  };

  explicit BackupClock(Micros lease) : lease_(lease) {}

  void EnterView(Micros now) {
    heard_at_.clear();
    acknowledged_at_.clear();
    next_repeat_at_ = now;
  }
  void OnAnswer(const PeerId& backup, Micros now) { heard_at_[backup] = now; }
  void OnRootAck(const PeerId& backup, Micros now) {
    heard_at_[backup] = acknowledged_at_[backup] = now;
  }
  // Notes that the backup owes an answer to a message that was sent to it.
  void Expect(Micros now, Debt& debt);

  bool IsDue(Micros now) const { return now >= next_repeat_at_; }
  // A caller visits all debts in a round: StartRound(), then IsRepeatDue() for each debt.
  void StartRound() { next_repeat_at_ = kNever; }
  // Returns whether to repeat now. `sends_roots`: the debt is for roots, not for an image.
  bool IsRepeatDue(Micros now, const PeerId& backup, bool sends_roots, Debt& debt);
  // Returns how long the backup has been silent, if that is too long. REQUIRES: debt.since.
  std::optional<Micros> SilenceOver(Micros now, const PeerId& backup, const Debt& debt) const;
  Micros NextDeadline() const { return next_repeat_at_; }

 private:
  const Micros lease_;
  Micros next_repeat_at_ = kNever;
  std::map<PeerId, Micros> heard_at_;         // when a backup last answered
  std::map<PeerId, Micros> acknowledged_at_;  // when it last acknowledged a root
};

class Replication : public Reports::Source, LanePart {
 public:
  // All arguments outlive it.
  Replication(const LanePart& part, Micros lease, const ProgressReport& progress,
              Reports::Clock& report_clock, Inquiry& inquiry)
      : LanePart(part),
        progress_(progress),
        report_clock_(report_clock),
        inquiry_(inquiry),
        clock_(lease) {}

  void OnRootAck(Micros now, const Envelope& envelope, const RootAck& ack);
  void OnChunkAck(Micros now, const Envelope& envelope, const ChunkAck& ack);

  bool HasBackups(ShardId shard) const {
    const auto it = backups_.find(shard);
    return it != backups_.end() && !it->second.empty();
  }
  // Gathers the root that the shard has sealed, for the backups that take roots.
  void GatherSealedRoot(Micros now, const Shard& shard) {
    for (Backup& backup : backups_[shard.id()]) {
      if (backup.TakesRoots()) GatherRoots(now, shard, backup, shard.newest());
    }
  }
  // Sends the gathered roots, or holds them a little longer. Must run before the versions are made,
  // so that all replicas make them at the same time.
  void SendRoots(Micros now);
  // P22. Returns whether this is the root with which an in-sync backup answers that question.
  bool IsRootOfBackup(const Envelope& envelope, const RootItem& item) const;
  // Is called when the primary has made its newest version from such a root.
  void OnAdopted(Micros now, const Shard& shard);
  // P8. Returns whether all required backups have acknowledged the newest version.
  bool MayCommit(const Shard& shard) const;
  // Takes the shards to check with MayCommit: they have a new version or wait for fewer backups.
  std::set<ShardId> TakeCommittable() { return std::exchange(committable_, {}); }
  void NoteMade(ShardId shard) { committable_.insert(shard); }
  // Forgets what the newest version, which is committed now, needed: its contradictions, and its
  // roots unless a newcomer needs them.
  void OnCommitted(Shard& shard) {
    contradictions_.OnCommitted(shard.id(), shard.committed());
    const auto it = backups_.find(shard.id());
    const auto is_syncing = [](const Backup& backup) { return backup.pair.has_value(); };
    if (it == backups_.end() || std::ranges::none_of(it->second, is_syncing)) shard.ForgetRoots();
  }
  // Starts the image transfers that have not begun, unless a version is uncommitted.
  void StartImages(Micros now, Shard& shard);
  // Is called when a primary has got its data.
  void OnRestored(Micros now, Shard& shard) {
    for (Backup& backup : backups_[shard.id()]) backup.acked = shard.committed();
    StartImages(now, shard);
  }

  // `promoted`: the shards of which the lane has become the primary. It asks their backups (P22).
  void EnterView(Micros now, const std::vector<ShardId>& promoted);
  // A new generation begins.
  void Clear() {
    backups_.clear();
    committable_.clear();
    contradictions_.Clear();
    inquiry_.Clear();
  }
  void Tick(Micros now);  // repeats unanswered messages
  // Owed is the backup that has owed an acknowledgement for the longest time, and since when.
  struct Owed {
    PeerId backup;
    Micros since{0};
  };
  std::optional<Owed> OldestOwed() const;
  Micros NextDeadline() const {
    return std::min(clock_.NextDeadline(), roots_held_until_.value_or(kNever));
  }
  bool AddReports(std::vector<Message>* reports) const override {
    const bool has_synced = AddSynced(reports);
    return contradictions_.AddReports(reports) || has_synced;
  }

 private:
  struct Backup {
    PeerId peer;
    std::optional<ViewId> pair = {};  // SyncingBackup::since; none if in sync
    bool is_required = true;          // whether a commit needs its acknowledgement
    Version acked = {};               // its newest version, by acknowledgement or image
    std::optional<OutgoingTransfer> transfer = {};  // syncing, once the image is frozen
    BackupClock::Debt debt = {};
    bool TakesRoots() const { return !pair || (transfer && transfer->is_complete()); }
  };
  using Backups = std::vector<Backup>;  // of one shard, in the view's order

  static Backups InView(const ShardPlacement& placement, Backups known, Version committed);
  Backup* Find(ShardId shard, const PeerId& peer);
  void OnAnswer(Micros now, const Shard& shard, Backup& backup, Version newest);
  void GatherRoots(Micros now, const Shard& shard, Backup& backup, Version after);
  void OnAcked(Micros now, Backup& backup, const RootAckItem& item);
  void NoteCaughtUp(Micros now, const Shard& shard, Backup& backup);
  void SendChunks(Micros now, Backup& backup);
  void Repeat(Micros now, const Shard& shard, Backup& backup);
  void ReportSilent(const PeerId& peer, Micros silence);
  bool AddSynced(std::vector<Message>* reports) const;

  const ProgressReport& progress_;
  Reports::Clock& report_clock_;
  Inquiry& inquiry_;
  BackupClock clock_;
  std::map<ShardId, Backups> backups_;  // of the shards of which the lane is primary
  std::map<PeerId, Root> roots_out_;    // until SendRoots, or a little longer
  std::optional<Micros> roots_held_until_;
  std::set<ShardId> committable_;
  Contradictions contradictions_;
};

}  // namespace pando
