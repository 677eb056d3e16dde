// Scheduler is the protocol core that owns membership, placement, assignment and the run's
// progress. It is never on the data path. Run by net/event_loop, and by the simulator.
//
// clang-format off
//   phase       | entered when                          | what it does
//   ------------+---------------------------------------+-----------------------------------------
//   kGathering  | start of a run, or of its resumption  | welcomes nodes until all the job wants
//               |                                       | are ready
//   kTraining   | all are ready; the journal has a view | scalars, progress, evaluations, leases,
//               |                                       | views as nodes come and go, rollbacks
//   kCollecting | version n committed and evaluated     | pulls the final weights, waits for the
//               |                                       | final snapshot; a rollback trains again
//   kStopping   | both are here, or a failure, or End() | says Stop until everybody said Bye, or
//               |                                       | for stop_grace
//   kFinished   | all have left                         | -
// clang-format on
//
// What it decides is in the journal before anybody hears of it (P25): OnMessage and Tick gather
// what there is to say, and Tick writes the journal before it says it. Once the journal refuses,
// the core is fenced and never speaks again (P26).
//
// Threads: none. What happens is told to the RunObserver, in order.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/float_buffer.h"
#include "common/job_plan.h"
#include "proto/core.h"
#include "scheduler/fault_ledger.h"
#include "scheduler/journal.h"
#include "scheduler/member.h"
#include "scheduler/run_observer.h"
#include "scheduler/schedule.h"
#include "scheduler/snapshot_ledger.h"
#include "scheduler/step_pace.h"
#include "scheduler/verify_ledger.h"

namespace pando {

class Scheduler : public ProtocolCore {
 public:
  struct Options {
    PeerId self;
    JobId job;
    std::string job_toml;
    std::string snapshot_dir;             // told to every node; empty: the run stores no snapshots
    Micros started_at{0};                 // when the job began, on the machine's steady clock
    Step next_row;                        // OnStepMetrics goes on from here
    std::optional<SchedulerState> state;  // of the journal, if there is one
    bool is_fresh = false;  // with a state: all nodes are new, and a new generation begins from the
                            // last snapshot (`pando resume`)
    Micros stop_grace = std::chrono::milliseconds(500);
  };
  enum class Phase : uint8_t { kGathering, kTraining, kCollecting, kStopping, kFinished };

  // `plan`, `journal`, `observer` and `outbox` outlive the scheduler.
  Scheduler(Options options, const JobPlan& plan, Journal& journal, RunObserver& observer,
            Outbox& outbox);

  void OnMessage(Micros now, const Envelope& envelope) override;
  void Tick(Micros now) override;
  Micros NextDeadline() const override;
  // The connection of a process broke: it is dead unless it is heard of soon.
  void OnDisconnect(Micros now, Incarnation incarnation);
  // Ends the run early: Ctrl-C, or nobody came. No effect on a run that is ending.
  void End(Micros now, StopReason reason, std::string text);

  Phase phase() const { return phase_; }
  bool finished() const { return phase_ == Phase::kFinished; }
  // The journal refuses, for another scheduler leads the run, say: the process must leave without
  // another word.
  bool fenced() const { return !journal_status_.ok(); }
  const Status& journal_status() const { return journal_status_; }
  // How the run ended.  REQUIRES: phase() ≥ kStopping.
  const Stop& stop() const { return *stop_; }
  // Whether that was for a member that is gone, of a group, which cannot go on without it.
  bool has_lost_member() const { return has_lost_member_; }
  const View& view() const { return view_; }
  Version committed() const { return committed_; }
  // The version that the run ends with, as far as is known: an early stop makes it a lower one.
  Version final_version() const { return final_version_; }
  // Time in which steps were made: from the first view on, evaluations left out.
  Micros TrainingTime(Micros now) const;
  // "2 of 3 workers, 1 of 2 servers": what kGathering waits for.
  std::string MissingText() const;
  // What the run cannot go on without: "no worker"; empty if it goes on.
  std::string WaitingText() const;
  std::string StatusJson(Micros now) const;
  VerificationState verification() const;
  // How long workers' threads have waited for samples since this life began, all together.
  uint64_t data_stall_us() const { return data_stall_us_; }
  // How long one of them has waited for parameters, likewise, on average.
  uint64_t exposed_sync_us() const { return exposed_sync_us_; }
  // Of the workers' GPUs, as their last heartbeats say: the most memory in use on one, and the mean
  // share of time with a kernel at work. Zeros where no worker has one.
  struct GpuUse {
    uint64_t memory_bytes = 0;
    double percent = 0;
  };
  GpuUse gpu_use() const;
  // Of the pictures that the run has read, those that cannot be decoded.
  uint64_t bad_picture_count() const { return bad_pictures_.count(); }

 private:
  // A process whose connection broke has this long to say something.
  static constexpr Micros kSuspectGrace = std::chrono::milliseconds(400);
  // Joiners and newcomers in sync come in groups: one view for all of them.
  static constexpr Micros kViewGatherTime = std::chrono::milliseconds(5);
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
  struct Silence {  // between a worker's process and a server
    Micros at{0};   // last told of
    uint32_t count = 0;
  };
  struct PendingRollback {
    std::string reason;
    Micros since{0};
    Micros not_before{0};
  };
  struct UnreadableSnapshot {  // what this generation began from, until it is under way
    SnapshotRef snapshot;
    std::set<NodeId> servers;  // that could not restore it
    uint32_t rounds = 0;       // in which nobody could
  };
  struct PendingCommand {
    Command command;
    PeerId from;
    CommandOutcome outcome = CommandOutcome::kAccepted;
    std::string text;
    Incarnation drained;  // kDrain
  };
  struct Trouble {  // a machine's own, told in a Failure
    std::string host;
    Version committed;  // by then
  };
  struct SnapshotRequest {  // of the command
    Version version;
    uint32_t attempts = 0;
    Micros patience_until{0};
  };

  void OnMessageOf(Micros now, const Envelope& envelope, const Register& registration);
  void OnMessageOf(Micros now, const Envelope& envelope, const Ready& ready);
  void OnMessageOf(Micros now, const Envelope& envelope, const Heartbeat& heartbeat);
  void CountWaits(const Member& member, const Heartbeat& heartbeat);
  void OnMessageOf(Micros now, const Envelope& envelope, const Leave& leave);
  void OnMessageOf(Micros now, const Envelope& envelope, const FaultNote& note);
  void OnMessageOf(Micros now, const Envelope& envelope, const PeerSilent& silent);
  void OnMessageOf(Micros now, const Envelope& envelope, const ViewAck& ack);
  void OnMessageOf(Micros now, const Envelope& envelope, const Synced& synced);
  void OnMessageOf(Micros now, const Envelope& envelope, const Divergence& divergence);
  void OnMessageOf(Micros now, const Envelope& envelope, const ScalarsRequest& request);
  void OnMessageOf(Micros now, const Envelope& envelope, const Progress& progress);
  void OnMessageOf(Micros now, const Envelope& envelope, const EvaluationResult& result);
  void OnMessageOf(Micros now, const Envelope& envelope, const PinReleased& released);
  void OnMessageOf(Micros now, const Envelope& envelope, const SnapshotStored& stored);
  void OnMessageOf(Micros now, const Envelope& envelope, const SnapshotAtAck& ack);
  void OnMessageOf(Micros now, const Envelope& envelope, const RestoreFailed& failed);
  void OnMessageOf(Micros now, const Envelope& envelope, const GradientHashes& hashes);
  void OnMessageOf(Micros now, const Envelope& envelope, const PicturesReplaced& replaced);
  void OnMessageOf(Micros now, const Envelope& envelope, const Params& params);
  void OnMessageOf(Micros now, const Envelope& envelope, const Failure& failure);
  void OnMessageOf(Micros now, const Envelope& envelope, const Bye& bye);
  void OnMessageOf(Micros now, const Envelope& envelope, const StatusRequest& request);
  void OnMessageOf(Micros now, const Envelope& envelope, const Command& command);
  template <class Other>
  void OnMessageOf(Micros, const Envelope&, const Other&) {}  // not for the scheduler

  // The core itself (scheduler.cc).
  bool HearMember(Micros now, const Envelope& envelope);
  void HearAnybody(Micros now);
  void Begin(Micros now);
  bool is_running() const { return phase_ == Phase::kTraining || phase_ == Phase::kCollecting; }
  void RepeatControl(Micros now);
  void RepeatTo(Micros now, Member& member, const PeerId& peer);
  void Send(const PeerId& to, Message message);
  void RefuseGivenUp(const PeerId& to);
  SchedulerState State() const;
  bool Commit();
  void Flush(Micros now);
  void Tell(Micros now, const char* name, const std::string& node, const std::string& text,
            bool is_notable = false);
  // Membership (scheduler_members.cc).
  std::string ReasonToRefuse(const Register& registration) const;
  bool IsGroup() const { return plan_.job.strategy == Strategy::kAllreduce; }
  std::string ReasonNotInGroup(const Register& registration) const;
  void EndGroup(Micros now, const Member& lost, const std::string& action);
  Member& Welcomed(Micros now, const PeerId& from, const Register& registration);
  uint32_t WantedOf(Role role) const;
  void StartWhenComplete(Micros now);
  void CompareKinds(Micros now, const Member& newcomer);
  Micros LeaseOf(const Member& member) const;
  void JudgeLeases(Micros now);
  void TellDeafness(Micros now);
  void OnDeath(Micros now, NodeId node, const std::string& action, const std::string& detected_by);
  void Forget(NodeId node);
  void OnSilentBackup(Micros now, const Member& primary, Member& backup, const std::string& text);
  void OnSilentPair(Micros now, const Member& reporter, const Member& server);
  bool LeadsShards(const Member& server) const;
  Micros SilenceMemory() const;
  bool IsOftenSilent(Micros now, const Register& registration) const;
  // Views and generations (scheduler_views.cc).
  ViewId NextViewId() const;
  // Whether this life of the scheduler has published a view.
  bool has_announced() const { return view_.id.number != 0 && view_.id.term == term_; }
  void RequestView(Micros at);
  bool IsViewDue(Micros now) const;
  void MakeView(Micros now);
  void ApplyReports(View& next);
  std::vector<MicroBatchOwner> NextOwners(Micros now);
  std::vector<WorkerSpeed> Speeds(Micros now) const;
  std::optional<Micros> MeasureStep(Micros now);
  void ConsiderSpeeds(Micros now);
  void Publish(Micros now, View next);
  void IndexPrimaries();
  bool IsWorkerNamed(NodeId worker) const;
  bool IsServerNamed(NodeId server) const;
  Step StepAhead() const;
  Step StepReached() const;
  bool IsOurs(ViewId id, uint32_t generation) const;
  void OnNewsBeyond(Micros now, const Member& member, ViewId id, uint32_t generation);
  void PlanRollback(Micros now, const std::string& reason);
  void RollBackWhenPossible(Micros now);
  Version RestoreBound() const;
  void StartGeneration(Micros now);
  // Progress and evaluation (scheduler_run.cc).
  void LearnCommitted(Micros now);
  void StartDueEvaluation(Micros now);
  void HandOutSlices(Micros now);
  void ReleaseSlices(NodeId worker);
  void FinishEvaluation(Micros now);
  void Decide();
  void TellDecision(Micros now);
  Version ScalarsEnd() const;
  void SendScalars(const PeerId& lane, Step first);
  // Snapshots (scheduler_snapshots.cc).
  void CompleteSnapshots(Micros now);
  void WatchSnapshotRequest(Micros now);
  void AskForSnapshot(Micros now, uint32_t attempt);
  bool IsFinalSnapshotSettled(Micros now);
  void TellSnapshotFailed(Micros now, const std::string& node, Version version,
                          const std::string& reason);
  bool CanNobodyRestore(Micros now) const;
  std::vector<PlacementServer> RestoringServers(Micros now, const SnapshotRef& restore);
  // Verification (scheduler_verify.cc).
  void OnDispute(Micros now, const Dispute& dispute);
  void AppointJudge(std::vector<NodeId>& workers) const;
  bool IsParty(NodeId worker) const;
  bool IsOfDisputedKind(NodeId worker) const;
  bool IsJudgement(const GradientHash& report) const;
  void Judge(Micros now, NodeId judge, const GradientHash& report);
  void AdvanceVerification(Micros now);
  void ResumeVerification(const VerificationState& state);
  bool IsVerificationSettled() const;
  // Commands and drains (scheduler_commands.cc).
  void Execute(Micros now, PendingCommand& command);
  std::string ReasonNotToDrain(const Member& member) const;
  void Drain(Micros now, Member& member);
  void StopDrained(Micros now);
  void Conclude(PendingCommand& command, CommandOutcome outcome, std::string text);
  // The end (scheduler_end.cc).
  void StartCollecting(Micros now);
  void Collect(Micros now);
  void CollectAgain(Micros now);
  void FinishWhenComplete(Micros now);
  bool IsTroubleOfAll(const Member& member);
  bool AreWeightsKept(Micros now);
  void SendStop();
  void LeaveWhenAllHave(Micros now);

  const Options options_;
  const JobPlan& plan_;
  Journal& journal_;
  RunObserver& observer_;
  Outbox& outbox_;
  const Schedule schedule_;
  Phase phase_ = Phase::kGathering;
  Status journal_status_;
  bool has_begun_ = false;            // has been told the time
  bool has_changed_ = false;          // since the journal was written
  std::optional<Micros> journal_at_;  // kAnnounceBeforeJournal: when it is written
  std::vector<Envelope> outgoing_;    // gathered until Tick
  Micros repeat_at_{0};
  Micros ticked_at_{-1};
  // Membership.
  Members members_;
  uint32_t next_node_ = 1;
  Micros heard_at_{0};  // when any process of the run was heard last
  bool has_told_deafness_ = false;
  std::optional<Micros> renewed_at_;  // when all leases were renewed (P27)
  std::set<Incarnation> given_up_;    // never to be welcomed again
  // P23, by server, of workers' processes (host, process id): they join again under other names.
  std::map<NodeId, std::map<std::pair<std::string, uint32_t>, Silence>> silences_;
  FaultLedger faults_;
  // Views.
  uint64_t term_ = 1;
  uint64_t journal_term_ = 0;      // the first of this life
  ViewId journal_view_;            // the newest one before it
  std::set<Incarnation> unheard_;  // members of earlier lives that have yet to report (P26)
  uint32_t generation_seen_ = 0;   // the highest that the journal does not know
  View view_;
  std::optional<Micros> view_due_at_;
  std::optional<PendingRollback> rollback_;
  std::set<std::pair<uint32_t, SyncingBackup>>
      synced_;                                          // shard, newcomer: in sync, says its source
  std::set<std::pair<NodeId, NodeId>> silent_backups_;  // primary's server, backup's (P23)
  uint32_t divergence_count_ = 0;
  Micros speeds_at_{0};  // when speeds are considered next
  Micros measured_at_{0};
  std::optional<Version> measured_;  // was committed then
  Micros step_time_{0};
  bool has_speed_gain_ = false;
  std::set<NodeId> shared_among_;  // whom the micro-batches were shared among, with a share or not
  // Progress.
  std::set<PeerId> primary_lanes_;            // of the view
  std::map<PeerId, Version> lane_committed_;  // those that have reported under the view
  Version committed_;  // of every shard; known under some view of the generation
  StepPace pace_;
  uint64_t data_stall_us_ = 0;
  uint64_t exposed_sync_us_ = 0;
  BadPictures bad_pictures_;
  Step next_row_;
  Step step_at_start_;  // where an earlier life of ours died, about
  std::optional<Evaluation> evaluation_;
  std::vector<EvaluationSummary> evaluations_;
  Version evaluated_;  // the newest version whose evaluation is done
  Version final_version_;
  Micros training_since_{0};
  Micros evaluation_time_{0};
  // Verification.
  VerifyLedger verified_;
  std::optional<Dispute> dispute_;
  uint32_t dispute_count_ = 0;
  bool had_judge_ = false;  // when owners were last decided on
  // Snapshots and commands.
  SnapshotLedger snapshots_;
  uint32_t failed_snapshots_ = 0;  // since the last that is complete
  UnreadableSnapshot unreadable_;
  std::optional<SnapshotRequest> snapshot_request_;
  std::map<Incarnation, PendingCommand> commands_;
  // The end.
  std::optional<Trouble> trouble_;  // the last
  std::optional<FloatBuffer> final_weights_;
  std::vector<bool> collected_;  // by shard
  uint32_t collect_end_ = 0;     // shards below it have been asked for
  Micros collect_wait_{0};       // of silence, before the missing ones are asked for again
  Micros collect_again_at_{0};
  Micros collecting_since_{0};
  std::optional<Micros> unkept_since_;  // the final weights are here and cannot be written
  Micros keep_at_{0};                   // when that is tried again
  bool is_finished_ = false;            // P33
  std::optional<Stop> stop_;
  bool has_lost_member_ = false;
  Micros stop_at_{0};                    // when kStopping began
  std::optional<Micros> training_time_;  // fixed while the run ends
};

}  // namespace pando
