// Snapshots completes the snapshots whose shards all lanes have stored (P29, P30). Part of the
// scheduler core. Threads: none.
#pragma once

#include <optional>
#include <string>

#include "scheduler/ledgers/snapshot_ledger.h"
#include "scheduler/run_facts.h"

namespace pando {

class Snapshots {
 public:
  // `run` outlives this.
  Snapshots(RunFacts& run, const SchedulerOptions& options);

  void OnSnapshotStored(Micros now, const PeerId& from, const SnapshotStored& stored);
  // Completes what is ripe. Steps below `settled_below` are verified (P41).
  void Tick(Micros now, Step settled_below);
  // Whether the snapshot of the run's last version is complete, or will never be.
  bool IsFinalSettled(Micros now, Micros collecting_since);

  // It cannot be read. Its files stay as they are.
  void Forget(Micros now, const SnapshotRef& unreadable);
  // Tells the observer whose files are not needed any more.
  void ReportDropped(Micros now);

  bool has_store() const { return has_store_; }
  SnapshotLedger& ledger() { return ledger_; }
  const SnapshotLedger& ledger() const { return ledger_; }

 private:
  void TellFailed(Micros now, const std::string& node, Version version, const std::string& reason);

  RunFacts& run_;
  const bool has_store_;
  SnapshotLedger ledger_;
  uint32_t failed_count_ = 0;  // since the last that is complete
};

}  // namespace pando
