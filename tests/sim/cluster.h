// Cluster runs one simulated job: a scheduler, servers with lanes and workers, all of them the real
// cores over the real codec, against chance, and checks the invariants after every event.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/job_plan.h"
#include "proto/join.h"
#include "scheduler/scheduler.h"
#include "server/lane.h"
#include "tests/sim/memory_journal.h"
#include "tests/sim/reference.h"
#include "tests/sim/virtual_computer.h"
#include "tests/sim/world.h"
#include "worker/session.h"

namespace pando::sim {

struct Outcome {
  bool ok = false;
  std::string failure;  // which invariant, where, when
  uint64_t trace_hash = 0;
  uint64_t message_count = 0;
  Micros finished_at{0};
};

// What the scenario of one seed may contain; the seed draws from it.
struct Faults {
  double loss_max = 0.15;
  double duplication_max = 0.2;
  double straggle_max = 0.05;
  bool connection_resets = true;
  bool worker_crashes = true;  // their micro-batches go to the others (P12, P17)
};

class Cluster : public RunObserver {
 public:
  Cluster(uint64_t seed, const Faults& faults, bool is_tracing);
  ~Cluster() override;
  Outcome Run();

  void OnEvent(Micros now, const RunEvent& event) override;
  void OnStepMetrics(Micros now, const StepMetrics& metrics) override;
  void OnEvaluation(Micros now, const EvaluationSummary& summary) override;
  void OnFault(Micros now, const FaultRecord& fault) override;
  void OnSnapshot(Micros now, const SnapshotManifest& manifest) override;
  void OnSnapshotDropped(Micros now, const SnapshotManifest& manifest) override;
  void OnFinalWeights(Micros now, const FloatBuffer& flat) override;

 private:
  class NetworkOutbox : public Outbox {
   public:
    explicit NetworkOutbox(Network& network) : network_(network) {}
    void Send(Envelope envelope) override { network_.Send(envelope); }

   private:
    Network& network_;
  };
  struct Party {  // one event loop: a lane, a worker or the scheduler
    std::unique_ptr<ProtocolCore> core;
    std::unique_ptr<VirtualComputer> computer;  // workers
    std::unique_ptr<SnapshotPort> snapshots;    // lanes
    Lane* lane = nullptr;
    Session* session = nullptr;
    JoinCore* join = nullptr;
    bool is_alive = true;
    bool is_tick_due = false;
    Micros wakes_at = kNever;
  };
  struct Process {
    Role role = Role::kWorker;
    Incarnation incarnation;
    uint16_t lane_count = 1;
    std::vector<Party*> parties;
  };

  void StartScheduler();
  void StartProcess(Role role);
  void BecomeMember(Process& process, Party& joiner);
  void BeatHeart(Process& process);
  void PlanFaults();
  void CrashAWorker();
  Party& AddParty(std::unique_ptr<ProtocolCore> core);
  void AttachParty(Party& party, const PeerId& peer);
  void WakeSoon(Party& party);
  void TickParty(Party& party);
  // Invariants.
  void Fail(std::string what);
  void CheckSent(const Envelope& envelope);
  void CheckPush(const Push& push);
  void CheckParams(const Params& params);
  void CheckBounds();

  Faults faults_;
  World world_;
  Network network_;
  NetworkOutbox outbox_{network_};
  JobPlan plan_;
  Reference reference_;
  PeerId scheduler_id_;
  MemoryJournal journal_;
  std::unique_ptr<Scheduler> scheduler_;
  Party scheduler_party_;
  std::vector<std::unique_ptr<Party>> parties_;
  std::vector<std::unique_ptr<Process>> processes_;
  bool has_final_weights_ = false;
  Step next_metrics_;
  std::set<Version> evaluated_;
  std::optional<std::string> failure_;
};

}  // namespace pando::sim
