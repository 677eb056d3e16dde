// Scheduler is the protocol core that owns membership, placement, assignment and the run's
// progress. No gradient or parameter passes through it, except the final weights. net/event_loop
// and the simulator run it. The phases of a run are in scheduler/run_phase.h.
//
// It is a dispatcher: each message goes to the part that owns the state it concerns. The parts, low
// to high; each part knows only those above it in this table:
//
// clang-format off
//   part                                    | owns
//   ----------------------------------------+-------------------------------------------------------
//   ViewLedger, JournaledOutbox, RunPhase,  | the view; what is sent; the phase; faults; results:
//   FaultLedger, EvaluationHistory          | facts that many parts use
//   RunProgress                             | committed versions, scalars
//   RunMembers                              | members and their leases
//   Rollback                                | whether a rollback is pending
//   Silences                                | pairs of members that do not hear each other
//   EvaluationRounds                        | slices of the test set
//   Snapshots                               | stored versions
//   GradientComparison                      | gradients that are computed twice
//   OwnerPlan                               | speeds, and the owners of micro-batches
//   Commands                                | commands of people, drains
//   FinalWeights                            | the collection of the final weights
//   ViewMaker                               | reports for the next view, acknowledgements of this one
//   Generations                             | snapshots that servers could not read
//   Failures                                | reports of trouble
// clang-format on
//
// Decisions are in the journal before any process hears of them (P25): OnMessage and Tick gather
// messages, and Tick writes the journal before it sends them. Once the journal refuses, the core is
// fenced and never sends again (P26).
//
// Threads: none. Events go to the RunObserver, in order.
#pragma once

#include <optional>
#include <string>

#include "proto/core.h"
#include "scheduler/commands.h"
#include "scheduler/failures.h"
#include "scheduler/generations.h"

namespace pando {

class Scheduler : public ProtocolCore, private JournaledState, private MembershipObserver {
 public:
  struct Options {
    PeerId self;
    JobId job;
    std::string job_toml;
    std::string snapshot_dir;             // sent to every node; empty: the run stores no snapshots
    Micros started_at{0};                 // when the job began, on the machine's steady clock
    Step next_row;                        // OnStepMetrics continues from here
    std::optional<SchedulerState> state;  // of the journal, if there is one
    bool is_fresh = false;  // with a state: all nodes are new, and a new generation begins from the
                            // last snapshot (`pando resume`)
    Micros stop_grace = std::chrono::milliseconds(500);
  };
  using Phase = SchedulerPhase;

  // `plan`, `journal`, `observer` and `outbox` outlive the scheduler.
  Scheduler(const Options& options, const JobPlan& plan, Journal& journal, RunObserver& observer,
            Outbox& outbox);

  void OnMessage(Micros now, const Envelope& envelope) override;
  void Tick(Micros now) override;
  Micros NextDeadline() const override;
  // The connection of a process broke: it is dead unless a message of it comes soon.
  void OnDisconnect(Micros now, Incarnation incarnation) {
    membership_.OnDisconnect(now, incarnation);
  }
  // Ends the run early: Ctrl-C, or nodes are missing. No effect on a run that is ending.
  void End(Micros now, StopReason reason, std::string text) {
    phase_.End(now, reason, std::move(text));
  }

  Phase phase() const { return phase_.phase(); }
  bool finished() const { return phase_.is_finished(); }
  // The journal refuses; for example another scheduler leads the run. The process must leave and
  // send nothing more.
  bool fenced() const { return outbox_.fenced(); }
  const Status& journal_status() const { return outbox_.status(); }
  // How the run ended.  REQUIRES: phase() >= kStopping.
  const Stop& stop() const { return phase_.stop(); }
  // Whether a group ended because it lost a member, which it cannot go on without.
  bool has_lost_member() const { return phase_.has_lost_member(); }
  const View& view() const { return views_.view(); }
  Version committed() const { return progress_.committed(); }
  // The version that the run ends with, as far as is known: an early stop makes it a lower one.
  Version final_version() const { return history_.final_version(); }
  // Time in which steps were made: from the first view on, evaluations left out.
  Micros TrainingTime(Micros now) const { return phase_.TrainingTime(now); }
  // "2 of 3 workers, 1 of 2 servers": what kGathering waits for.
  std::string MissingText() const { return membership_.MissingText(); }
  // What the run cannot continue without: "no worker"; empty if it continues.
  std::string WaitingText() const { return view_maker_.WaitingText(); }
  std::string StatusJson(Micros now) const;
  VerificationState verification() const { return verification_.State(); }
  const RunMembers& membership() const { return membership_; }

 private:
  void Begin(Micros now);
  bool IsForUs(Micros now, const Envelope& envelope);
  void Route(Micros now, const Envelope& envelope);
  void RepeatUnanswered(Micros now);

  SchedulerState State() const override;
  void OnJournaled() override { snapshots_.OnJournaled(); }
  void OnWelcome(Micros now, const Member& member) override { silences_.OnWelcome(now, member); }
  void OnForget(const Member& member) override;

  const JobPlan& plan_;
  ViewLedger views_;
  JournaledOutbox outbox_;
  RunPhase phase_;
  FaultLedger faults_;
  EvaluationHistory history_;
  RunProgress progress_;
  RunMembers membership_;
  Rollback rollback_;
  Silences silences_;
  EvaluationRounds evaluations_;
  Snapshots snapshots_;
  GradientComparison verification_;
  OwnerPlan owners_;
  Commands commands_;
  FinalWeights final_weights_;
  ViewMaker view_maker_;
  Generations generations_;
  Failures failures_;
};

}  // namespace pando
