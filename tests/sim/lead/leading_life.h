// LeadingLife is a simulated process as the run's scheduler: the real core with its gate, and the
// copy of its folder at a standby. Death closes the doors to the journal and to the observer, and
// so does a standby that leads. Used by Process.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "tests/sim/member.h"

namespace pando::sim {

class LeadingLife : public Journal, public RunObserver {
 public:
  struct Start {
    bool is_resumed = false;  // no earlier member lives
    Step next_row;
  };
  // All outlive it.
  LeadingLife(Process& process, const JobPlan& plan, const ProcessAround& around,
              ProcessLoops& loops, const Start& start);
  ~LeadingLife() override;
  LeadingLife(const LeadingLife&) = delete;

  Scheduler& scheduler() { return *scheduler_; }
  // Null without standbys.
  VirtualCopies* copies() { return copies_.get(); }

  Status Commit(const SchedulerState& state) override;
  void OnEvent(Micros now, const RunEvent& event) override;
  void OnStepMetrics(Micros now, const StepMetrics& metrics) override;
  void OnEvaluation(Micros now, const EvaluationSummary& summary) override;
  void OnEvaluationsDropped(Micros now, Version last_good) override;
  std::optional<SnapshotCheck> OnSnapshotRipe(Micros now,
                                              const SnapshotManifest& manifest) override;
  void OnSnapshot(Micros now, const SnapshotManifest& manifest) override;
  void OnSnapshotDropped(Micros now, const SnapshotManifest& manifest) override;
  void OnFault(Micros now, const FaultRecord& record) override;
  void OnSnapshotForgotten(Micros now, const SnapshotRef& snapshot) override;
  Status OnFinalWeights(Micros now, Version version, const SnapshotManifest* stored,
                        const FloatBuffer& flat) override;

 private:
  // Whether the events of this life count for the run.
  bool counts() const;

  Process& process_;
  const ProcessAround& around_;
  std::unique_ptr<VirtualCopies> copies_;
  std::unique_ptr<LeaderGate> gate_;
  Scheduler* scheduler_ = nullptr;         // the loop's core
  std::unique_ptr<SchedulerFiles> files_;  // null: the disk is shared
  std::optional<uint64_t> weights_mark_;   // since the final weights are written
};

}  // namespace pando::sim
