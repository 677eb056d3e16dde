#include "scheduler/scheduler.h"

#include <algorithm>

#include "proto/dispatch.h"
#include "proto/messages.h"

namespace pando {
Scheduler::Scheduler(const Options& options, const JobPlan& plan, Journal& journal,
                     RunObserver& observer, Outbox& outbox)
    : run_(options, plan, journal, observer, outbox, *this, *this),
      silences_(run_),
      evaluations_(run_),
      snapshots_(run_, options),
      ownership_(run_, evaluations_, options.state),
      verification_(run_, options.state, {evaluations_, snapshots_, ownership_}),
      owners_(run_, silences_, verification_),
      requests_(run_, snapshots_),
      last_snapshot_(run_, snapshots_, requests_),
      commands_(run_, evaluations_, requests_, last_snapshot_),
      final_weights_(run_, verification_, snapshots_),
      view_maker_(run_, {silences_, evaluations_, snapshots_, ownership_, requests_, verification_,
                         owners_, final_weights_}),
      failures_(run_, last_snapshot_),
      stalls_(run_) {
  const bool was_training = options.state && !options.is_fresh && view().id.number != 0;
  if (!was_training) return;
  run_.phase.Resume();
  owners_.Resume();
  run_.progress.OnView();
}

// The first call that knows the time. A scheduler that starts again lets every member report before
// it sends a view (P26); a member that is silent for a lease is dead.
void Scheduler::Begin(Micros now) {
  if (!run_.membership.Begin(now)) return;
  run_.phase.StartClock(now);
  if (run_.phase.is_completed()) return run_.phase.End(now, StopReason::kCompleted, "completed");
  if (!run_.phase.is_training()) return;
  run_.progress.OnRestart();
  run_.faults.OnDetected(now, {.target = "scheduler"}, "exit", "exit", run_.progress.StepReached());
  run_.views.RequestView(now);
  run_.outbox.TellNotable(now, "scheduler-restarted", "",
                          "the scheduler has restarted, in term {}, with {} processes",
                          run_.views.term(), run_.members().all().size());
  verification_.OnRestart(now);
}

// ---- messages ----------------------------------------------------------------------------------

void Scheduler::OnMessage(Micros now, const Envelope& envelope) {
  if (finished() || fenced()) return;
  Begin(now);
  if (IsForUs(now, envelope)) Route(now, envelope);
}

bool Scheduler::IsForUs(Micros now, const Envelope& envelope) {
  const MessageRow& row = RowFor(envelope.message);
  if (MayBeStranger(row.sender)) {
    const Incarnation wanted = envelope.receiver.incarnation;
    return wanted == Incarnation(0) || wanted == run_.outbox.self().incarnation;
  }
  if (envelope.receiver.node != kSchedulerNode || envelope.job != run_.outbox.job()) return false;
  const Member* member = run_.membership.OnHeard(now, envelope);
  if (member == nullptr) return false;
  if (run_.phase.is_running() && !run_.views.IsOurs(envelope.view, envelope.generation)) {
    if (run_.seal != nullptr && HoldsAny<ViewUpdate>(envelope.message)) return true;
    run_.claims.OnClaim(now, envelope.sender, envelope.view, envelope.generation);
    return false;
  }
  if (row.generation == Generation::kOne && envelope.generation != view().generation) return false;
  return ownership_.Admits(*member, envelope);
}

void Scheduler::Route(Micros now, const Envelope& envelope) {
  const PeerId& from = envelope.sender;
  Dispatch<Core::kScheduler>(
      envelope.message,
      // Members.
      [&](const Register& m) { run_.membership.OnRegister(now, from, m); },
      [&](const Ready& m) {
        if (run_.membership.OnReady(now, from, m)) view_maker_.OnMemberReady(now);
      },
      [&](const Heartbeat& m) {
        stalls_.OnHeartbeat(now, run_.Sender(from), m);
        run_.membership.OnHeartbeat(from, m);
        owners_.OnHeartbeat(run_.Sender(from).peer.node, m);
      },
      [&](const Bye&) { run_.membership.OnBye(from); },
      [&](const Leave&) { commands_.OnLeave(now, from); },
      [&](const Failure& m) { failures_.OnFailure(now, envelope, m); },
      [&](const FaultNote& m) { failures_.OnFaultNote(now, from, m); },
      [&](const PeerSilent& m) { silences_.OnPeerSilent(now, from, m); },
      // Views.
      [&](const ViewUpdate& m) { run_.claims.OnViewUpdate(now, from, m); },
      [&](const ViewAck& m) { view_maker_.OnViewAck(now, envelope, m); },
      [&](const Synced& m) { view_maker_.OnSynced(now, from, m); },
      [&](const Divergence& m) { run_.rollback.OnDivergence(now, from, m); },
      [&](const RestoreFailed& m) { view_maker_.OnRestoreFailed(now, from, m); },
      // Steps.
      [&](const ScalarsRequest& m) { run_.progress.OnScalarsRequest(from, m); },
      [&](const Progress& m) {
        if (run_.progress.OnProgress(now, envelope, m)) view_maker_.OnCommitted(committed());
      },
      [&](const GradientHashes& m) { verification_.OnGradientHashes(now, from, m); },
      // Results.
      [&](const EvaluationResult& m) {
        if (evaluations_.OnEvaluationResult(now, m)) final_weights_.StartCollecting(now);
      },
      [&](const PinReleased& m) { evaluations_.OnPinReleased(from, m); },
      [&](const SnapshotStored& m) { snapshots_.OnSnapshotStored(now, from, m); },
      [&](const SnapshotAtAck& m) { requests_.OnSnapshotAtAck(from, m); },
      [&](const Params& m) { final_weights_.OnParams(now, from, m); },
      // People.
      [&](const StatusRequest&) { run_.outbox.Send(from, StatusReport{StatusJson(now)}); },
      [&](const Command& m) { commands_.OnCommand(now, from, m); });
}

// ---- the clock ---------------------------------------------------------------------------------

void Scheduler::Tick(Micros now) {
  if (finished() || fenced()) return;
  Begin(now);
  run_.membership.Tick(now);
  commands_.StopDrained(now);
  if (run_.phase.is_running()) {
    owners_.Tick(now);
    view_maker_.Tick(now);
    verification_.Tick(now);
    snapshots_.Tick(now, verification_.settled_below());
    commands_.ConcludeSnapshots(now);
    last_snapshot_.Tick(now);
  }
  if (run_.phase.is_training()) {
    if (evaluations_.StartDue(now)) final_weights_.StartCollecting(now);
    evaluations_.HandOutSlices();
  }
  final_weights_.Tick(now);
  if (run_.outbox.TakeRepeat(now)) RepeatUnanswered(now);
  run_.phase.FinishWhenLeft(now, run_.members().all().empty());
  const std::vector<FaultRecord> faults = run_.faults.TakeChanged();
  if (!faults.empty()) run_.outbox.MarkChanged();
  stalls_.Tick(now);
  run_.outbox.Flush(now);
  if (fenced()) return;
  for (const FaultRecord& fault : faults) run_.observer.OnFault(now, fault);
  snapshots_.ReportDropped(now);
}

void Scheduler::RepeatUnanswered(Micros now) {
  if (run_.phase.is_ending()) return run_.membership.RepeatStop();
  for (const auto& [node, member] : run_.members().all()) {
    const bool has_view =
        run_.phase.is_running() && member.takes_part() && run_.views.HasAnnounced();
    for (const PeerId& lane : member.Peers()) {
      if (run_.membership.RepeatDrained(member, lane) || !has_view) continue;
      view_maker_.RepeatTo(lane);
      if (member.role() != Role::kServer) continue;
      evaluations_.RepeatTo(lane);
      requests_.RepeatTo(lane);
    }
  }
  final_weights_.Repeat(now);
  evaluations_.RepeatSlices();
}

Micros Scheduler::NextDeadline() const {
  if (finished() || fenced()) return kNever;
  return std::min({run_.outbox.repeat_at(), run_.membership.NextDeadline(),
                   view_maker_.NextDeadline(), last_snapshot_.NextDeadline(),
                   run_.phase.NextDeadline(), stalls_.NextDeadline()});
}

// ---- what several parts know -------------------------------------------------------------------

SchedulerState Scheduler::State() const {
  return {.job = run_.outbox.job(),
          .term = run_.views.term(),
          .next_node = run_.membership.next_node(),
          .view = view(),
          .holders = ownership_.holders(),
          .members = run_.members().Records(),
          .snapshots = snapshots_.ledger().complete(),
          .given_up = snapshots_.ledger().given_up(),
          .evaluations = run_.history.all(),
          .faults = run_.faults.records(),
          .verification = verification_.State(),
          .is_finished = run_.phase.is_completed()};
}

void Scheduler::OnForget(const Member& member) {
  run_.claims.Forget(member);
  silences_.Forget(member.peer.node);
  commands_.Forget(member);
  evaluations_.Forget(member);
  ownership_.Forget(member);
  owners_.Forget(member.peer.node);
  requests_.Forget(member);
  view_maker_.Forget(member);
  stalls_.OnForget(member);
}

}  // namespace pando
