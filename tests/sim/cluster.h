// Cluster runs one simulated job: a scheduler, servers with lanes and workers, all of them the real
// cores over the real codec, with random delays, losses and faults. The invariants are checked
// after every event.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/job_plan.h"
#include "tests/fake_seal.h"
#include "tests/sim/check/checker.h"
#include "tests/sim/coverage.h"
#include "tests/sim/faults.h"
#include "tests/sim/hostile/hostile_member.h"
#include "tests/sim/hostile/hostile_peer.h"
#include "tests/sim/hostile/view_forger.h"
#include "tests/sim/population.h"
#include "tests/sim/reference.h"
#include "tests/sim/storage/disk.h"
#include "tests/sim/swarm.h"
#include "tests/sim/world.h"
#include "tests/sim/wrong_bits.h"

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

  // ---- RunObserver -----------------------------------------------------------------------------
  void OnEvent(Micros now, const RunEvent& event) override;
  void OnStepMetrics(Micros now, const StepMetrics& metrics) override;
  void OnEvaluation(Micros now, const EvaluationSummary& summary) override;
  void OnEvaluationsDropped(Micros, Version) override {}
  void OnFault(Micros now, const FaultRecord& fault) override;
  std::optional<SnapshotCheck> OnSnapshotRipe(Micros now,
                                              const SnapshotManifest& manifest) override;
  void OnSnapshot(Micros now, const SnapshotManifest& manifest) override;
  void OnSnapshotDropped(Micros now, const SnapshotManifest& manifest) override;
  void OnSnapshotForgotten(Micros now, const SnapshotRef& snapshot) override;
  Status OnFinalWeights(Micros now, Version version, const SnapshotManifest* stored,
                        const FloatBuffer& flat) override;

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
  bool OnSent(Envelope& envelope);
  void NoteDrawn(uint64_t seed) const;
  void Heal();
  void WatchForStop();
  void CheckStop(uint32_t stops);
  bool IsOver() const;
  std::string WhereItHangs();

  World world_;
  const Swarm swarm_;
  const JobPlan plan_;
  const Reference reference_;
  Network network_;
  VirtualDisk disk_;
  JournalDisk journal_;
  FakeSeal seal_;
  Coverage coverage_;
  const Stage stage_;
  Processes processes_;
  Checker checker_;
  Population population_;
  WrongBits wrong_bits_;
  Faults faults_;
  HostilePeer hostile_;
  HostileMember hostile_member_;
  ViewForger forger_;
  Micros liveness_deadline_{0};

  // How a run is stopped (P33).
  struct Stopping {
    Incarnation scheduler;  // the life that it is about: a later one was not asked to stop
    // Before its scheduler began to end it:
    Version committed;
    uint32_t generation = 0;
    bool was_training = false;
    bool has_given_up = false;  // a snapshot: the disk is slow, or fails
    Micros asked_at{0};         // for a last snapshot
  };
  Stopping stopping_;
};

}  // namespace pando::sim
