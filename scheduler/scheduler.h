// Scheduler is the protocol core that owns membership, placement, assignment and the run's
// progress. It is never on the data path. Run by net/event_loop, and by the simulator.
//
// clang-format off
//   phase       | entered when                          | what it does
//   ------------+---------------------------------------+-----------------------------------------
//   kGathering  | start                                 | welcomes nodes until all the job wants
//               |                                       | are ready
//   kTraining   | all are ready: view 1                 | scalars, progress, evaluations, leases
//   kCollecting | version n committed and evaluated     | pulls the final weights
//   kStopping   | weights are here, or a failure, or    | says Stop until everybody said Bye, or
//               | End()                                 | for stop_grace
//   kFinished   | all have left                         | -
// clang-format on
//
// Threads: none. What happens is told to the RunObserver, in order.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/float_buffer.h"
#include "common/job_plan.h"
#include "proto/core.h"
#include "scheduler/journal.h"
#include "scheduler/schedule.h"

namespace pando {

// Something that happened to the run, for events.jsonl and the log.
struct RunEvent {
  std::string name;         // "registered", "view", "training", "dead", "failed", ...
  std::string node;         // "worker 1", or empty
  std::string text;         // for people
  bool is_notable = false;  // worth a line on the terminal
};

// What the scheduler tells whoever keeps the run folder. Calls come from the core, in order.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void OnEvent(Micros now, const RunEvent& event) = 0;
  // Every step of the job exactly once, ascending.
  virtual void OnStepMetrics(Micros now, const StepMetrics& metrics) = 0;
  virtual void OnEvaluation(Micros now, const EvaluationSummary& summary) = 0;
  // The flat parameter vector of version n.
  virtual void OnFinalWeights(Micros now, const FloatBuffer& flat) = 0;
};

class Scheduler : public ProtocolCore {
 public:
  // What a silent worker costs. Servers end the job either way until shards can move.
  enum class OnWorkerDeath : uint8_t { kEndJob, kReassign };
  struct Options {
    PeerId self;
    JobId job;
    std::string job_toml;
    OnWorkerDeath on_worker_death = OnWorkerDeath::kEndJob;
    Micros stop_grace = std::chrono::milliseconds(500);
  };
  enum class Phase : uint8_t { kGathering, kTraining, kCollecting, kStopping, kFinished };

  // `plan`, `observer` and `outbox` outlive the scheduler.
  Scheduler(const Options& options, const JobPlan& plan, RunObserver& observer, Outbox& outbox);

  void OnMessage(Micros now, const Envelope& envelope) override;
  void Tick(Micros now) override;
  Micros NextDeadline() const override;
  // Ends the run early: Ctrl-C, or nobody came. No effect on a run that is ending.
  void End(Micros now, StopReason reason, std::string text);

  Phase phase() const { return phase_; }
  bool finished() const { return phase_ == Phase::kFinished; }
  // How the run ended.  REQUIRES: phase() ≥ kStopping.
  const Stop& stop() const { return *stop_; }
  const View& view() const { return view_; }
  Version committed() const;
  // Time in which steps were made: from the first view on, evaluations left out.
  Micros TrainingTime(Micros now) const;
  // "2 of 3 workers, 1 of 2 servers": what kGathering waits for.
  std::string MissingText() const;
  std::string StatusJson(Micros now) const;

 private:
  struct Member {
    PeerId peer;
    Register registration;
    uint32_t rank = 0;
    bool is_ready = false;
    Ready ready;
    Micros heard_at{0};
    Heartbeat heartbeat;
    bool is_gone = false;                      // dead, or said Bye in kStopping
    std::map<uint16_t, ViewId> acked_views;    // by lane
    std::map<uint16_t, Version> committed;     // by lane, servers
    std::map<uint16_t, Version> released_pin;  // by lane, servers
    std::set<uint16_t> left_lanes;             // said Bye
  };
  struct Slice {
    uint32_t index = 0;
    uint64_t first_sample = 0;
    uint64_t last_sample = 0;
    NodeId worker = kUnknownNode;
    std::optional<EvaluationResult> result;
  };
  struct Evaluation {
    Version version;
    std::vector<Slice> slices;
    Micros started_at{0};
  };

  void OnMessageOf(Micros now, const PeerId& from, const Register& registration);
  void OnMessageOf(Micros now, const PeerId& from, const Ready& ready);
  void OnMessageOf(Micros now, const PeerId& from, const Heartbeat& heartbeat);
  void OnMessageOf(Micros now, const PeerId& from, const ViewAck& ack);
  void OnMessageOf(Micros now, const PeerId& from, const ScalarsRequest& request);
  void OnMessageOf(Micros now, const PeerId& from, const Progress& progress);
  void OnMessageOf(Micros now, const PeerId& from, const EvaluationResult& result);
  void OnMessageOf(Micros now, const PeerId& from, const PinReleased& released);
  void OnMessageOf(Micros now, const PeerId& from, const Params& params);
  void OnMessageOf(Micros now, const PeerId& from, const Failure& failure);
  void OnMessageOf(Micros now, const PeerId& from, const Bye& bye);
  void OnMessageOf(Micros now, const PeerId& from, const StatusRequest& request);
  template <class Other>
  void OnMessageOf(Micros, const PeerId&, const Other&) {}  // not for the scheduler

  // Membership.
  Member* FindMember(Incarnation incarnation);
  std::vector<Member*> Living(Role role);
  uint32_t CountOf(Role role, bool ready_only) const;
  uint32_t WantedOf(Role role) const;
  uint32_t FreeRank(Role role) const;
  void StartWhenComplete(Micros now);
  void CompareKinds(Micros now);
  void MakeView(Micros now);
  void JudgeLeases(Micros now);
  void OnDeath(Micros now, Member& member);
  // Evaluation.
  void StartDueEvaluation(Micros now);
  void HandOutSlices(Micros now);
  void FinishEvaluation(Micros now);
  // End.
  void StartCollecting(Micros now);
  void Collect(Micros now);
  void SendStop();
  void LeaveWhenAllHave(Micros now);
  // Sending.
  void RepeatControl(Micros now);
  void Send(const PeerId& to, Message message);
  std::vector<PeerId> PeersOf(const Member& member) const;  // every lane, or the worker
  static std::string NameOf(const Member& member);

  Options options_;
  const JobPlan& plan_;
  RunObserver& observer_;
  Outbox& outbox_;
  Schedule schedule_;
  Phase phase_ = Phase::kGathering;
  std::map<NodeId, Member> members_;
  uint32_t next_node_ = 1;
  View view_;
  Micros repeat_at_{0};
  Micros ticked_at_{-1};
  Step next_row_;
  std::optional<Evaluation> evaluation_;
  Version evaluated_;  // the newest version whose evaluation is done
  Micros training_since_{0};
  Micros evaluation_time_{0};
  std::optional<FloatBuffer> final_weights_;
  std::vector<bool> collected_;  // by shard
  uint32_t collect_end_ = 0;     // shards below it have been asked for
  std::optional<Stop> stop_;
  Micros stop_at_{0};        // when kStopping began
  Micros training_time_{0};  // fixed when version n is evaluated
};

}  // namespace pando
