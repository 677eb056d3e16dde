// LastSnapshot ends a run before its last version, with a snapshot of where it stands: `pando
// resume` then repeats few steps or none (P33).
#pragma once

#include <optional>
#include <string>

#include "scheduler/snapshot_requests.h"

namespace pando {

class LastSnapshot : SchedulerPart {
 public:
  // How long the run goes on for the snapshot, at most.
  static constexpr Micros kPatience = std::chrono::seconds(8);

  LastSnapshot(const SchedulerPart& part, const RunProgress& progress, const Snapshots& snapshots,
               SnapshotRequests& requests)
      : SchedulerPart(part), progress_(progress), snapshots_(snapshots), requests_(requests) {}

  // Ends the run once the snapshot is stored; at once if there is nothing new to store, or if an
  // interruption is repeated.
  void End(Micros now, StopReason reason, std::string text);
  bool is_pending() const { return pending_.has_value(); }
  void Tick(Micros now);
  Micros NextDeadline() const { return pending_ ? pending_->patience_until : kNever; }

 private:
  struct Pending {
    Stop stop;
    Version committed;  // the version that was committed when the end was asked for
    Version asked;      // the version of the snapshot
    Micros patience_until;
  };
  void Ask(Micros now);
  bool HasNews() const;
  Version Stored() const;

  const RunProgress& progress_;
  const Snapshots& snapshots_;
  SnapshotRequests& requests_;
  std::optional<Pending> pending_;
};

}  // namespace pando
