// Scheduler is the protocol core that owns membership, placement, assignment and the run's
// progress. No gradient or parameter passes through it, except the final weights. net/event_loop
// and the simulator run it. The phases of a run are in scheduler/run_progress.h.
//
// It is a dispatcher: each message goes to the part that owns the state it concerns. The parts, low
// to high; each part knows only those above it in this table:
//
// clang-format off
//   part                                    | owns
//   ----------------------------------------+-------------------------------------------------------
//   RunFacts                                | what many parts use:
//   - ViewLedger, JournaledOutbox, RunPhase | the view; what is sent; the phase
//   - FaultLedger, EvaluationHistory        | faults; results
//   - RunProgress                           | committed versions, scalars
//   - RunMembers                            | members and their leases
//   - Rollback                              | whether a rollback is pending
//   - ViewClaims                            | claims of views that are not ours
//   Silences                                | pairs of members that do not hear each other
//   EvaluationRounds                        | slices of the test set
//   Snapshots                               | stored versions
//   Ownership                               | what is believed of each member
//   GradientComparison                      | gradients that are computed twice
//   OwnerPlan                               | speeds, and the owners of micro-batches
//   SnapshotRequests, LastSnapshot          | snapshots asked for; how the run ends early
//   Commands                                | commands of people, drains
//   FinalWeights                            | the collection of the final weights
//   ViewMaker                               | reports for the next view, acknowledgements of this
//                                           | one, snapshots that servers could not read
//   Failures                                | reports of trouble
//   StallWatch                              | why no step is made
// clang-format on
//
// Decisions are in the journal before any process hears of them (P25): OnMessage and Tick gather
// messages, and Tick writes the journal before it sends them. Once the journal refuses, the core is
// fenced and never sends again (P26).
//
// Threads: none. Events go to the RunObserver, in order.
#pragma once

#include <string>

#include "proto/protocol_core.h"
#include "scheduler/commands.h"
#include "scheduler/failures.h"
#include "scheduler/ownership.h"
#include "scheduler/stall_watch.h"
#include "scheduler/view_maker.h"

namespace pando {

class Scheduler : public ProtocolCore, private JournaledState, private MembershipObserver {
 public:
  using Options = SchedulerOptions;
  using Phase = SchedulerPhase;

  // `plan`, `journal`, `observer` and `outbox` outlive the scheduler.
  Scheduler(const Options& options, const JobPlan& plan, Journal& journal, RunObserver& observer,
            Outbox& outbox);

  void OnMessage(Micros now, const Envelope& envelope) override;
  void Tick(Micros now) override;
  Micros NextDeadline() const override;
  // The connection of a process broke: it is dead unless a message of it comes soon. `nonsense`: it
  // has sent that, which is no message, and is given up.
  void OnDisconnect(Micros now, Incarnation incarnation, const std::string& nonsense = "") {
    if (finished() || fenced()) return;
    Begin(now);
    run_.membership.OnDisconnect(now, incarnation, nonsense);
  }
  // Ends the run early: Ctrl-C, or nodes are missing. Stores a snapshot first, if steps were made,
  // unless it is asked again. No effect on a run that is ending.
  void End(Micros now, StopReason reason, std::string text) {
    last_snapshot_.End(now, reason, std::move(text));
  }

  Phase phase() const { return run_.phase.phase(); }
  bool finished() const { return run_.phase.is_finished(); }
  // The journal refuses; for example another scheduler leads the run. The process must leave and
  // send nothing more.
  bool fenced() const { return run_.outbox.fenced(); }
  const Status& journal_status() const { return run_.outbox.status(); }
  // How the run ended.  REQUIRES: phase() >= kStopping.
  const Stop& stop() const { return run_.phase.stop(); }
  // Whether a group ended because it lost a member, which it cannot go on without.
  bool has_lost_member() const { return run_.phase.has_lost_member(); }
  const View& view() const { return run_.view(); }
  Version committed() const { return run_.progress.committed(); }
  // The version that the run ends with, as far as is known: an early stop makes it a lower one.
  Version final_version() const { return run_.history.final_version(); }
  RunTimes Times(Micros now) const {
    return {run_.phase.TrainingTime(now), run_.phase.evaluation_time(), run_.progress.made()};
  }
  // "2 of 3 workers, 1 of 2 servers": what kGathering waits for.
  std::string MissingText() const { return run_.membership.MissingText(); }
  // What the run cannot continue without: "no worker"; empty if it continues.
  std::string WaitingText() const { return view_maker_.WaitingText(); }
  // The answer to `pando status`: the run's phase, progress, members and faults. `own_wait`: what
  // this process waits for, if the caller knows something.
  std::string StatusJson(Micros now, const std::optional<Stall>& own_wait = std::nullopt) const;
  VerificationState verification() const { return verification_.State(); }
  const RunMembers& membership() const { return run_.membership; }

 private:
  void Begin(Micros now);
  bool IsForUs(Micros now, const Envelope& envelope);
  void Route(Micros now, const Envelope& envelope);
  void RepeatUnanswered(Micros now);

  SchedulerState State() const override;
  void OnJournaled() override { snapshots_.ledger().OnJournaled(); }
  void OnWelcome(Micros now, const Member& member) override { silences_.OnWelcome(now, member); }
  void OnForget(const Member& member) override;

  RunFacts run_;
  Silences silences_;
  EvaluationRounds evaluations_;
  Snapshots snapshots_;
  Ownership ownership_;
  GradientComparison verification_;
  OwnerPlan owners_;
  SnapshotRequests requests_;
  LastSnapshot last_snapshot_;
  Commands commands_;
  FinalWeights final_weights_;
  ViewMaker view_maker_;
  Failures failures_;
  StallWatch stalls_;
};

}  // namespace pando
