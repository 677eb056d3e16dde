// ShardSnapshots stores a lane's shards when a snapshot is due, reports them until the scheduler
// acknowledges, and restores shards (P29). It is a part of the lane. Threads: none. Owns: the
// unanswered requests to the SnapshotPort, and the reports.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "proto/view_member.h"
#include "server/lane_part.h"
#include "server/replicas.h"
#include "server/reports.h"
#include "server/snapshot_port.h"

namespace pando {

class ShardSnapshots : public Reports::Source, LanePart {
 public:
  // All arguments outlive it.
  ShardSnapshots(const LanePart& part, SnapshotPort& port, Reports::Clock& clock)
      : LanePart(part), port_(port), clock_(clock) {}

  void OnSnapshotAt(Micros now, const Envelope& envelope, const SnapshotAt& at);
  void OnSnapshotAck(const SnapshotAck& ack) {
    for (const SnapshotAckItem& item : ack.items) stored_.erase({item.version, item.shard});
  }
  // Handles an answer of the port.  Returns the shard that has got its data, if there is one.
  std::optional<ShardId> OnEvent(Micros now, SnapshotEvent event) {
    if (auto* loaded = std::get_if<RecordLoaded>(&event)) return OnLoaded(now, std::move(*loaded));
    OnStored(now, std::get<RecordStored>(event));
    return std::nullopt;
  }
  // Stores the newest version if it is committed and due.
  void StoreIfDue(Micros now, Shard& shard);
  // Reports a backup's hash of the newest version, if that is due, so that the scheduler can
  // compare it with the primary's.
  void ReportHashIfDue(Micros now, const Shard& shard);
  bool IsLoading(ShardId shard) const { return loading_.contains(shard); }

  // Restores in-sync replicas that have no data. Stores due versions of promoted replicas, because
  // their old primary may not have stored them.
  void EnterView(Micros now, const Replicas::Changes& changes);
  void Clear();  // a new generation begins
  bool AddReports(std::vector<Message>* reports) const override;

 private:
  void OnStored(Micros now, const RecordStored& stored);
  std::optional<ShardId> OnLoaded(Micros now, RecordLoaded loaded);
  Status Install(Shard& shard, RecordLoaded loaded) const;
  void Load(const Shard& shard);
  void ReportStored(Micros now, SnapshotStoredItem item);

  SnapshotPort& port_;
  Reports::Clock& clock_;
  std::set<ShardId> loading_;
  std::map<ShardId, uint32_t> stores_in_flight_;
  std::set<Version> asked_;  // versions to store besides the due ones
  // Repeated to the scheduler until it answers.
  std::map<std::pair<Version, ShardId>, SnapshotStoredItem> stored_;
  std::optional<RestoreFailed> restore_failed_;  // the generation's first, or of a damaged file
};

}  // namespace pando
