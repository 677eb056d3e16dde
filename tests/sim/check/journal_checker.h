// JournalChecker reads the scheduler's journal: what may follow what (P21, P24, P25, P27, P29, P30,
// P32). Part of Checker.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/sim/check/disturbances.h"
#include "tests/sim/check/version_checker.h"
#include "tests/sim/coverage.h"

namespace pando::sim {

class JournalChecker {
 public:
  struct Parts {  // all outlive it
    const Truth& truth;
    const VirtualDisk& disk;
    const Processes& processes;
    const Disturbances& disturbances;
    VersionChecker& versions;
    Coverage& coverage;
    Verdict& verdict;
  };
  explicit JournalChecker(const Parts& parts) : parts_(parts), plan_(parts.truth.plan()) {}

  void OnCommitted(const std::optional<SchedulerState>& before, const SchedulerState& after);
  // The run goes on with a copy of its folder, which has to have what the journal names (P47).
  void CheckFiles(const std::optional<SchedulerState>& state);
  void OnSnapshotDropped(const SnapshotManifest& dropped, const SchedulerState& state);
  void NoteSynced(const Synced& synced);
  // Events that explain later rollbacks and departures.
  void NoteResumed() { is_resuming_ = true; }
  // A client asked to drain the process with this name.
  void NoteDrain(Role role, uint32_t rank) { drained_.insert({role, rank}); }
  void NoteDivergence() { has_divergence_ = true; }
  void NoteWrongMemory(Incarnation process) { has_wrong_memory_.insert(process); }
  void NoteFailedRestores(uint64_t count) { failed_restores_ += count; }
  void NoteForgotten(const SnapshotRef& snapshot) { forgotten_.insert(snapshot); }

 private:
  void CheckTransition(const View& before, const View& after);
  void CheckRollback(const View& before, const View& after);
  void CheckGivenUp(const View& before, const View& after);
  void CheckManifest(const SnapshotManifest& manifest);
  void CheckOrigin(const SchedulerState& state);
  void CheckEvaluations(const SchedulerState& state);
  Version DecidedBy(const std::vector<EvaluationSummary>& evaluations) const;
  void Fail(const std::string& what) { parts_.verdict.Fail(what); }

  const Parts parts_;
  const JobPlan& plan_;
  std::set<std::tuple<ShardId, PeerId, ViewId>> synced_;  // reported, with the pair's name
  std::set<std::pair<Role, uint32_t>> drained_;
  std::set<SnapshotRef> manifests_;
  std::set<SnapshotRef> forgotten_;
  std::set<Version> evaluated_;
  bool has_divergence_ = false;
  std::set<Incarnation> has_wrong_memory_;
  // They are reported one after the other, and each may be the cause of a rollback.
  uint64_t failed_restores_ = 0;
  bool is_resuming_ = false;
};

}  // namespace pando::sim
