// Following is a backup's side of replication. It makes versions from its primaries' roots (P8,
// P22), takes images (P20, P24) and acknowledges both. It is a part of the lane;
// server/replication.h is the primary's side. Threads: none. Owns: incoming images and unsent
// acknowledgements.
#pragma once

#include <map>

#include "server/incoming_transfer.h"
#include "server/lane_part.h"
#include "server/lane_probe.h"
#include "server/progress_report.h"
#include "server/shard_snapshots.h"

namespace pando {

class Following : LanePart {
 public:
  // All arguments outlive it; `probe` may be null.
  Following(const LanePart& part, ShardSnapshots& snapshots, ProgressReport& progress,
            LaneProbe* probe)
      : LanePart(part), snapshots_(snapshots), progress_(progress), probe_(probe) {}

  void OnRoot(Micros now, const Envelope& envelope, const Root& root);
  void OnChunk(const Envelope& envelope, const Chunk& chunk);
  // P8. Tells the scheduler the hashes of a version, in any role.
  void OnHashWanted(const Envelope& envelope, const HashWanted& wanted) const;
  // Makes the versions that the released pin had delayed.
  void OnReleasePin(Micros now);

  void EnterView(const Replicas::Changes& changes);
  void Clear() { incoming_.clear(); }  // a new generation begins
  // Sends the acknowledgements.
  void Tick() {
    for (auto& [peer, ack] : acks_out_) member_.Send(peer, std::move(ack));
    acks_out_.clear();
  }

 private:
  void OnRootItem(Micros now, const PeerId& from, const RootItem& item);
  void NoteMade(Micros now, const Shard& shard) {
    progress_.NoteMetrics(shard);
    snapshots_.ReportHashIfDue(now, shard);
  }
  Shard::Followed Follow(Shard& shard, const RootItem& item) {
    const LaneProbe::Scope work(probe_, LaneWork::kUpdate, item.shard, item.step);
    return shard.Follow({item.step, item.scalars, item.payload, item.factors});
  }
  void Answer(const Replica& replica, const RootItem& question);
  void Acknowledge(const Replica& replica, Version version, bool is_answer = false);

  ShardSnapshots& snapshots_;
  ProgressReport& progress_;
  LaneProbe* const probe_;
  std::map<ShardId, IncomingTransfer> incoming_;  // of replicas that are syncing
  std::map<PeerId, RootAck> acks_out_;            // until Tick
};

}  // namespace pando
