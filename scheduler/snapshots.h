// Snapshots completes the snapshots whose shards all lanes have stored (P29, P30). Part of the
// scheduler core. Threads: none.
#pragma once

#include <optional>
#include <string>

#include "scheduler/journaled_outbox.h"
#include "scheduler/ledgers/evaluation_history.h"
#include "scheduler/ledgers/snapshot_ledger.h"
#include "scheduler/members/member.h"
#include "scheduler/rollback.h"
#include "scheduler/run_phase.h"
#include "scheduler/run_progress.h"

namespace pando {

class Snapshots {
 public:
  struct Parts {  // all outlive this
    const Members& members;
    const View& view;
    const RunPhase& phase;
    const Rollback& rollback;
    const RunProgress& progress;
    const EvaluationHistory& history;
    RunObserver& observer;
    JournaledOutbox& outbox;
  };
  // `has_store`: the run stores snapshots. `state`: what the journal has, if there is one.
  Snapshots(const JobPlan& plan, bool has_store, const std::optional<SchedulerState>& state,
            const Parts& parts);

  void OnSnapshotStored(Micros now, const PeerId& from, const SnapshotStored& stored);
  // Completes what is ripe. Steps below `settled_below` are verified (P41).
  void Tick(Micros now, Step settled_below);
  // Whether the snapshot of the run's last version is complete, or will never be.
  bool IsFinalSettled(Micros now, Micros collecting_since);

  void GiveUp(Version version) { ledger_.GiveUp(version); }
  void DiscardAfter(Version version) { ledger_.DiscardAfter(version); }
  // It cannot be read. Its files stay as they are.
  void Forget(Micros now, const SnapshotRef& unreadable);
  void StartGeneration(uint32_t generation, SnapshotRef origin) {
    ledger_.StartGeneration(generation, origin);
  }
  void OnJournaled() { ledger_.OnJournaled(); }
  // Tells the observer whose files are not needed any more.
  void ReportDropped(Micros now);

  bool has_store() const { return has_store_; }
  const SnapshotLedger& ledger() const { return ledger_; }

 private:
  void TellFailed(Micros now, const std::string& node, Version version, const std::string& reason);

  const JobPlan& plan_;
  const bool has_store_;
  const Parts parts_;
  SnapshotLedger ledger_;
  uint32_t failed_count_ = 0;  // since the last that is complete
};

}  // namespace pando
