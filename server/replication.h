// Replication: a primary's side of its shards' backups. Sends roots (P8, P13, P22) and images
// (P20, P24), takes the acknowledgements, says when a version may be committed, and repeats what is
// unanswered. Part of the lane; server/following.h is the backup's side.
//
// clang-format off
//   a primary's backup | acks required | what it is sent
//   -------------------+---------------+------------------------------------------------------------
//   in sync            | yes           | every root; after a new view what is uncommitted (P22)
//   syncing, image not | no            | the image, once the newest version is committed; meanwhile
//   over               |               | at most two versions are made (I6)
//   syncing, behind    | no            | the roots since the image; as before
//   syncing, has all   | yes           | every root; Synced goes to the scheduler (P24)
//   versions made      |               |
// clang-format on
//
// Threads: none. Owns: what is known of each backup. Invariants I2, I6.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "proto/view_member.h"
#include "server/backup_clock.h"
#include "server/progress_report.h"
#include "server/replicas.h"
#include "server/reports.h"
#include "server/transfer.h"

namespace pando {

class Replication : public ReportSource {
 public:
  // All outlive the part.
  Replication(ViewMember& member, Replicas& replicas, const JobPlan& plan, Micros lease,
              const ProgressReport& progress, ReportClock& report_clock)
      : member_(member),
        replicas_(replicas),
        plan_(plan),
        progress_(progress),
        report_clock_(report_clock),
        clock_(lease) {}

  void OnRootAck(Micros now, const Envelope& envelope, const RootAck& ack);
  void OnChunkAck(Micros now, const Envelope& envelope, const ChunkAck& ack);

  bool HasBackups(ShardId shard) const;
  // The root that shard has sealed, to the backups that take roots.
  void GatherSealedRoot(Micros now, const Shard& shard);
  // Sends what is gathered, or holds it a little longer. Before the versions are made of it, so
  // that all replicas make them at the same time.
  void SendRoots(Micros now);
  // P8: whether enough backups have acknowledged the newest version.
  bool MayCommit(const Shard& shard) const;
  // Shards that may be committed now: there is a new version, or one waits for fewer backups.
  std::set<ShardId> TakeCommittable() { return std::exchange(committable_, {}); }
  void NoteMade(ShardId shard) { committable_.insert(shard); }
  // The newest version is committed: its root is kept only for newcomers.
  void DropRoots(Shard& shard) const;
  // Starts the image transfers that have not begun, unless a version is uncommitted.
  void StartImages(Micros now, Shard& shard);
  // A primary has its data now.
  void OnRestored(Micros now, Shard& shard);

  void EnterView(Micros now);
  void Clear();           // a new generation begins
  void Tick(Micros now);  // repeats
  Micros NextDeadline() const {
    return std::min(clock_.NextDeadline(), roots_held_until_.value_or(kNever));
  }
  bool AddReports(std::vector<Message>* reports) const override;

 private:
  struct Backup {
    PeerId peer;
    std::optional<ViewId> pair = {};                // SyncingBackup::since; none: in sync
    bool is_required = true;                        // versions commit with its acknowledgement only
    Version acked = {};                             // the newest that it has, by hash or by image
    std::optional<OutgoingTransfer> transfer = {};  // syncing, once the image is frozen
    BackupClock::Debt debt = {};
    bool TakesRoots() const { return !pair || (transfer && transfer->is_complete()); }
  };
  using Backups = std::vector<Backup>;  // of one shard, in the view's order

  static Backups InView(const ShardPlacement& placement, Backups known, Version committed);
  Backup* Find(ShardId shard, const PeerId& peer);
  bool CountsFor(const Envelope& envelope) const;
  void GatherRoots(Micros now, const Shard& shard, Backup& backup, Version after);
  void OnAcked(Micros now, Backup& backup, const RootAckItem& item);
  void NoteCaughtUp(Micros now, const Shard& shard, Backup& backup);
  void SendChunks(Micros now, Backup& backup);
  void Repeat(Micros now, const Shard& shard, Backup& backup);
  void ReportSilent(const PeerId& peer, Micros silence);
  bool AddSynced(std::vector<Message>* reports) const;

  ViewMember& member_;
  Replicas& replicas_;
  const JobPlan& plan_;
  const ProgressReport& progress_;
  ReportClock& report_clock_;
  BackupClock clock_;
  std::map<ShardId, Backups> backups_;  // of primaries
  std::map<PeerId, Root> roots_out_;    // until SendRoots, or a little longer
  std::optional<Micros> roots_held_until_;
  std::set<ShardId> committable_;
  std::map<std::pair<ShardId, PeerId>, Divergence> divergences_;  // repeated to the scheduler
};

}  // namespace pando
