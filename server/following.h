// Following: a backup's side of replication. Makes versions from its primaries' roots (P8, P22),
// takes images (P20, P24), and acknowledges both. Part of the lane; server/replication.h is the
// primary's side.
// Threads: none. Owns: incoming images, and the acknowledgements that are not sent yet.
#pragma once

#include <map>

#include "proto/view_member.h"
#include "server/lane_probe.h"
#include "server/progress_report.h"
#include "server/replicas.h"
#include "server/shard_snapshots.h"
#include "server/transfer.h"

namespace pando {

class Following {
 public:
  // All outlive the part; `probe` may be null.
  Following(ViewMember& member, Replicas& replicas, const JobPlan& plan,
            const ShardSnapshots& snapshots, ProgressReport& progress, LaneProbe* probe)
      : member_(member),
        replicas_(replicas),
        plan_(plan),
        snapshots_(snapshots),
        progress_(progress),
        probe_(probe) {}

  void OnRoot(const Envelope& envelope, const Root& root);
  void OnChunk(const Envelope& envelope, const Chunk& chunk);
  // A pin that is released may have held up versions.
  void OnReleasePin();

  void EnterView(const Replicas::Changes& changes);
  void Clear() { incoming_.clear(); }  // a new generation begins
  void Tick();                         // sends the acknowledgements

 private:
  void OnRootItem(const PeerId& from, const RootItem& item);
  Shard::Followed Follow(Shard& shard, const RootItem& item);
  void Acknowledge(const Replica& replica, Version version);

  ViewMember& member_;
  Replicas& replicas_;
  const JobPlan& plan_;
  const ShardSnapshots& snapshots_;
  ProgressReport& progress_;
  LaneProbe* const probe_;
  std::map<ShardId, IncomingTransfer> incoming_;  // of replicas that are syncing
  std::map<PeerId, RootAck> acks_out_;            // until Tick
};

}  // namespace pando
