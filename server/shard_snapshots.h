// ShardSnapshots stores what is due of a lane's shards, tells the scheduler until it knows, and
// restores shards (P29). Part of the lane.
// Threads: none. Owns: the requests to the SnapshotPort that are unanswered, and the reports.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "proto/view_member.h"
#include "server/replicas.h"
#include "server/reports.h"
#include "server/snapshot_port.h"

namespace pando {

class ShardSnapshots : public ReportSource {
 public:
  // All outlive the part.
  ShardSnapshots(ViewMember& member, Replicas& replicas, const JobPlan& plan, SnapshotPort& port,
                 ReportClock& clock)
      : member_(member), replicas_(replicas), plan_(plan), port_(port), clock_(clock) {}

  void OnSnapshotAt(Micros now, const Envelope& envelope, const SnapshotAt& at);
  void OnSnapshotAck(const SnapshotAck& ack);
  // What the port answers. Returns the shard that has its data from now on, if there is one.
  std::optional<ShardId> OnEvent(Micros now, SnapshotEvent event);
  // Stores the newest version if it is committed and due.
  void StoreIfDue(Micros now, Shard& shard);
  bool IsLoading(ShardId shard) const { return loading_.contains(shard); }

  // Restores replicas in sync that have no data. Stores what is due of those promoted: their old
  // primary may not have stored it.
  void EnterView(Micros now, const Replicas::Changes& changes);
  void Clear();  // a new generation begins
  bool AddReports(std::vector<Message>* reports) const override;

 private:
  void OnStored(Micros now, const RecordStored& stored);
  std::optional<ShardId> OnLoaded(Micros now, RecordLoaded loaded);
  Status Install(Shard& shard, RecordLoaded loaded) const;
  void Load(const Shard& shard);
  void ReportStored(Micros now, SnapshotStoredItem item);

  ViewMember& member_;
  Replicas& replicas_;
  const JobPlan& plan_;
  SnapshotPort& port_;
  ReportClock& clock_;
  std::set<ShardId> loading_;
  std::map<ShardId, uint32_t> stores_in_flight_;
  std::set<Version> asked_;  // to be stored beside the due ones
  Version asked_max_;
  // Repeated to the scheduler until answered.
  std::map<std::pair<Version, ShardId>, SnapshotStoredItem> stored_;
  std::optional<RestoreFailed> restore_failed_;  // the first of the generation, or a damage
};

}  // namespace pando
