// Scheduler is the protocol core that owns membership, placement, assignment and the run's
// progress. No gradient or parameter passes through it, except the final weights. net/event_loop
// and the simulator run it. scheduler/run_phase.h has the phases of a run.
//
// The Scheduler hands each message to the part that owns the state it concerns. It does only what
// concerns all parts: begin a generation, publish a view, forget a member.
//
// Each letter in the last column names a part that this part knows; a dot is a part that it does
// not know. A part is built from parts above it, which outlive it. tools/lint/parts.py checks the
// table. No part has a thread.
//
// clang-format off
//   part                 | owns                                            | knows
//   ---------------------+-------------------------------------------------+-----------------------
//   a ViewLedger         | the newest view, and when the next one is due   |
//   b JournaledOutbox    | messages and events, sent after the journal     | a
//   c RunPhase           | the phase, a planned rollback, how the run ends | .b
//   d FaultLedger        | the faults of the run's processes               |
//   e EvaluationHistory  | results; the version that the run ends with     |
//   f RunProgress        | committed versions, rows of metrics, scalars    | ab.de
//   g Members            | the processes of the run                        |
//   h RunMembers         | leases; which processes join and leave          | abcd.fg
//   i ViewClaims         | claims of views that are not ours               | abc....h
//   j Silences           | pairs of members that do not hear each other    | abc..f.h
//   k EvaluationRounds   | slices of the test set                          | abc.efg
//   l Snapshots          | stored versions, and those that none can read   | abc.efg
//   m Ownership          | which reports of a member are believed          | a.........k
//   n GradientComparison | gradients that are computed twice               | abc.ef.h..klm
//   o OwnerPlan          | speeds, and the owners of micro-batches         | a.c..fg..j...n
//   p SnapshotRequests   | snapshots that were asked for                   | .bc..fg....l
//   q LastSnapshot       | the snapshot with which the run ends early      | abc..f.....l...p
//   r Commands           | commands of people, drains                      | abc..f.h..k....pq
//   s FinalWeights       | the collection of the final weights             | abcde......l.n
//   t Votes              | replicas that differ, and machines to avoid     | abc....h
//   u ViewMaker          | newcomers that the next view has in sync        | a.c....hij.l.no....t
//   v ViewPublisher      | which lanes have acknowledged the view          | abcd...h
//   w Failures           | reports of trouble                              | abcd.f.h........q
//   x StallWatch         | why no step is made                             | abc..f.h
// clang-format on
//
// Decisions are in the journal before any process learns them (P25): OnMessage and Tick gather
// messages, and Tick writes the journal before it sends them. If the journal refuses, the core is
// fenced and never sends again (P26). Events go to the RunObserver, in order.
#pragma once

#include <string>

#include "proto/protocol_core.h"
#include "scheduler/scheduler_parts.h"

namespace pando {

struct RunTimes {        // with the run's newest version
  Micros training{0};    // TrainingClock::Time
  Micros evaluation{0};  // TrainingClock::evaluation_time
  Version made;          // RunProgress::made
};

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
  // Handles a broken connection: its process is dead unless a message of it arrives soon.
  // `nonsense` describes bytes from it that are no message; then it is given up.
  void OnDisconnect(Micros now, Incarnation incarnation, const std::string& nonsense = "") {
    if (is_finished() || is_fenced()) return;
    Begin(now);
    parts_.membership.OnDisconnect(now, incarnation, nonsense);
  }
  // Ends the run early, for example after Ctrl-C. Stores a snapshot first if steps were made; a
  // second call ends the run without it. Has no effect on a run that is ending.
  void End(Micros now, StopReason reason, std::string text) {
    parts_.last_snapshot.End(now, reason, std::move(text));
  }

  Phase phase() const { return parts_.phase.phase(); }
  bool is_finished() const { return parts_.phase.is_finished(); }
  // Returns whether the journal has refused, for example because another scheduler leads the run.
  // The process must then leave and send nothing more.
  bool is_fenced() const { return parts_.outbox.is_fenced(); }
  const Status& journal_status() const { return parts_.outbox.status(); }
  // How the run ended.  REQUIRES: phase() >= kStopping.
  const Stop& stop() const { return parts_.phase.stop(); }
  // Returns whether an allreduce group ended because it lost a member.
  bool has_lost_member() const { return parts_.phase.has_lost_member(); }
  const View& view() const { return parts_.views.view(); }
  Version committed() const { return parts_.progress.committed(); }
  // The version that the run ends with, as far as is known. An early stop lowers it.
  Version final_version() const { return parts_.history.final_version(); }
  RunTimes Times(Micros now) const {
    const TrainingClock& clock = parts_.phase.clock();
    return {clock.Time(now), clock.evaluation_time(), parts_.progress.made()};
  }
  // Returns the answer to `pando status`: the run's phase, progress, members and faults.
  // `own_wait`: what this process itself waits for, for example its journal.
  std::string StatusJson(Micros now, const std::optional<Stall>& own_wait = std::nullopt) const;
  VerificationState verification() const { return parts_.verification.State(); }
  const RunMembers& membership() const { return parts_.membership; }

 private:
  void Begin(Micros now);
  bool IsForUs(Micros now, const Envelope& envelope);
  void Route(Micros now, const Envelope& envelope);
  void OnMemberReady(Micros now);
  void MakeViews(Micros now);
  void StartGeneration(Micros now);
  void Publish(Micros now, View next);
  void RepeatUnanswered(Micros now);

  SchedulerState State() const override;
  void OnJournaled() override { parts_.snapshots.ledger().OnJournaled(); }
  void OnForget(const Member& member) override;

  SchedulerParts parts_;
};

}  // namespace pando
