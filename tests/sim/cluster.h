// Cluster runs one simulated job: a scheduler, servers with lanes and workers, all of them the real
// cores over the real codec, with random delays, losses and faults. The invariants are checked
// after every event. It is the supervisor too: it starts processes, kills them, and starts them
// again.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/job_plan.h"
#include "tests/sim/checker.h"
#include "tests/sim/coverage.h"
#include "tests/sim/desk.h"
#include "tests/sim/disk.h"
#include "tests/sim/faults.h"
#include "tests/sim/process.h"
#include "tests/sim/reference.h"
#include "tests/sim/swarm.h"
#include "tests/sim/world.h"

namespace pando::sim {

struct Outcome {
  bool ok = false;
  std::string failure;  // which invariant, where, when
  uint64_t trace_hash = 0;
  uint64_t message_count = 0;
  Micros finished_at{0};
  Coverage coverage;
};

class Cluster : public RunObserver, public ProcessKeeper {
 public:
  struct Options {
    uint64_t seed = 1;
    Focus focus = Focus::kNone;
    bool is_tracing = false;
  };
  explicit Cluster(const Options& options);
  ~Cluster() override;
  Outcome Run();

  // ---- what the faults do ----------------------------------------------------------------------
  World& world() { return world_; }
  Network& network() { return network_; }
  VirtualDisk& disk() { return disk_; }
  Coverage& coverage() { return coverage_; }
  const Swarm& swarm() const { return swarm_; }
  const JobPlan& plan() const { return *plan_; }
  std::vector<Process*> Living(Role role);  // schedulers too
  Process* FindAt(Incarnation incarnation);
  void Kill(Process& process);
  void Reset(Process& process);
  void KillAtCommit();    // the scheduler, within its next commit
  void Start(Role role);  // one more
  void Drain(Process& process);
  void AskToLeave(Process& process);
  void AskForSnapshot();
  void StartSecondScheduler(Micros pause);
  void PowerOff();
  void Note(const std::string& text);  // in the trace

  // ---- RunObserver -----------------------------------------------------------------------------
  void OnEvent(Micros now, const RunEvent& event) override;
  void OnStepMetrics(Micros now, const StepMetrics& metrics) override;
  void OnEvaluation(Micros now, const EvaluationSummary& summary) override;
  void OnEvaluationsDropped(Micros, Version) override {}
  void OnFault(Micros now, const FaultRecord& fault) override;
  Status OnSnapshotRipe(Micros now, const SnapshotManifest& manifest) override;
  void OnSnapshot(Micros now, const SnapshotManifest& manifest) override;
  void OnSnapshotDropped(Micros now, const SnapshotManifest& manifest) override;
  void OnSnapshotForgotten(Micros now, const SnapshotRef& snapshot) override;
  Status OnFinalWeights(Micros now, Version version, const FloatBuffer& flat) override;

  // ---- ProcessKeeper ---------------------------------------------------------------------------
  void OnLaneEvent(Process& process, const Lane& lane) override;
  void OnSessionEvent(Process& process, const Session& session) override;
  void OnJoinAgain(Process& process) override;
  void OnLeft(Process& process) override;
  void BeforeCommit(Process& process) override;
  void OnCommitted(Process& process, const std::optional<SchedulerState>& before,
                   bool is_taken) override;
  bool FlipsBit(Process& process, Step step, MicroBatch m) override;
  void OnUnverified(Step step, MicroBatch m) override;

 private:
  enum class CommitDeath : uint8_t { kNone, kBefore, kAfter };
  bool OnSent(Envelope& envelope);
  void TamperWithRoot(Root& root);
  Process& AddProcess(const Seat& seat);
  Seat NewSeat(Role role);
  void StartScheduler(const Seat& seat, bool is_fresh);
  void StartAgain(const Process& dead);
  void TellOfDeath(const Process& process);
  void TellOfDisconnect(const Process& process);
  bool MayStayAway(Role role);
  Process* Leader();
  void Heal();
  void KeepEnough();
  void Resume();
  bool IsOver() const;
  std::string WhereItHangs();

  const uint64_t seed_;
  World world_;
  Swarm swarm_;
  std::vector<std::unique_ptr<JobPlan>> plans_;  // a resumed run wants other numbers
  const JobPlan* plan_;
  Reference reference_;
  Network network_;
  VirtualDisk disk_;
  JournalDisk journal_;
  Coverage coverage_;
  std::vector<std::unique_ptr<Process>> processes_;
  Checker checker_;
  Desk desk_;
  Faults faults_;
  Micros micro_batch_time_{0};
  Place next_place_ = 1;
  uint32_t next_process_id_ = 100;
  uint64_t power_epoch_ = 0;
  uint32_t starts_under_way_[3] = {0, 0, 0};  // by role: supervisors' back-offs
  Process* leader_ = nullptr;
  CommitDeath commit_death_ = CommitDeath::kNone;
  bool has_tampered_ = false;
  std::optional<std::pair<Step, MicroBatch>> flipped_;
  Process* flipper_ = nullptr;
  bool is_flip_unnoticed_ = false;
  bool is_healed_ = false;
  bool is_powered_ = true;
  Micros liveness_deadline_{0};
};

}  // namespace pando::sim
