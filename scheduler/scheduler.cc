#include "scheduler/scheduler.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "proto/dispatch.h"
#include "proto/messages.h"

namespace pando {

Scheduler::Scheduler(const Options& options, const JobPlan& plan, Journal& journal,
                     RunObserver& observer, Outbox& outbox)
    : parts_{options, plan, journal, observer, outbox, *this, *this} {
  parts_.options.state.reset();
  const bool was_training = options.state && !options.is_resumed && view().id.number != 0;
  if (!was_training) return;
  parts_.phase.Resume();
  parts_.owners.Resume();
  parts_.progress.OnView();
}

// Acts only in the first call that knows the time. A restarted scheduler lets every member report
// before it sends a view (P26); a member that is silent for a lease is dead.
void Scheduler::Begin(Micros now) {
  if (!parts_.membership.Begin(now)) return;
  if (parts_.phase.is_completed())
    return parts_.phase.End(now, StopReason::kCompleted, "completed");
  if (!parts_.phase.is_training()) return;
  parts_.phase.clock().Start(now);
  parts_.progress.OnRestart();
  parts_.faults.OnDetected(now, {.target = "scheduler"}, "exit", "exit",
                           parts_.progress.StepReached());
  parts_.views.RequestView(now);
  parts_.outbox.TellNotable(now, "scheduler-restarted", "",
                            "the scheduler has restarted, in term {}, with {} processes",
                            parts_.views.term(), parts_.members.all().size());
  parts_.verification.OnRestart(now);
}

// ---- messages ----------------------------------------------------------------------------------

void Scheduler::OnMessage(Micros now, const Envelope& envelope) {
  if (is_finished() || is_fenced()) return;
  Begin(now);
  if (IsForUs(now, envelope)) Route(now, envelope);
}

bool Scheduler::IsForUs(Micros now, const Envelope& envelope) {
  const MessageRow& row = RowFor(envelope.message);
  if (MayBeStranger(row.sender)) {
    const Incarnation wanted = envelope.receiver.incarnation;
    return wanted == Incarnation(0) || wanted == parts_.outbox.self().incarnation;
  }
  if (envelope.receiver.node != kSchedulerNode || envelope.job != parts_.outbox.job()) return false;
  const Member* member = parts_.membership.OnHeard(now, envelope);
  if (member == nullptr) return false;
  if (parts_.claims.IsClaim(envelope.view, envelope.generation)) {
    if (parts_.claims.MayBeProof(envelope.message)) return true;
    parts_.claims.OnClaim(now, envelope.sender, envelope.view, envelope.generation);
    return false;
  }
  if (row.generation == Generation::kOne && envelope.generation != view().generation) return false;
  return parts_.ownership.Admits(*member, envelope);
}

void Scheduler::Route(Micros now, const Envelope& envelope) {
  const PeerId& from = envelope.sender;
  Dispatch<Core::kScheduler>(
      envelope.message,
      // Members.
      [&](const Register& m) {
        const Member* added = parts_.membership.OnRegister(now, from, m);
        if (added != nullptr) parts_.silences.OnWelcome(now, *added);
      },
      [&](const Ready& m) {
        if (parts_.membership.OnReady(now, from, m)) OnMemberReady(now);
      },
      [&](const Heartbeat& m) {
        parts_.stalls.OnHeartbeat(now, parts_.members.Sender(from), m);
        parts_.membership.OnHeartbeat(from, m);
        parts_.owners.OnHeartbeat(parts_.members.Sender(from).peer.node, m);
      },
      [&](const Bye&) { parts_.membership.OnBye(from); },
      [&](const Leave&) { parts_.commands.OnLeave(now, from); },
      [&](const Failure& m) { parts_.failures.OnFailure(now, envelope, m); },
      [&](const FaultNote& m) { parts_.failures.OnFaultNote(now, from, m); },
      [&](const PeerSilent& m) { parts_.silences.OnPeerSilent(now, from, m); },
      // Views.
      [&](const ViewUpdate& m) { parts_.claims.OnViewUpdate(now, from, m); },
      [&](const ViewWanted&) {
        if (envelope.view < view().id) parts_.publisher.SendWhole(from);
      },
      [&](const ViewAck& m) {
        const bool is_claim = parts_.claims.IsClaim(m.id, m.generation);
        if (is_claim) return parts_.claims.OnClaim(now, from, m.id, m.generation);
        parts_.publisher.OnViewAck(now, envelope, m);
      },
      [&](const Synced& m) { parts_.view_maker.OnSynced(now, from, m); },
      [&](const Divergence& m) { parts_.votes.OnDivergence(now, from, m); },
      [&](const RecordHashes& m) { parts_.votes.OnRecordHashes(now, from, m); },
      [&](const RestoreFailed& m) { parts_.snapshots.OnRestoreFailed(now, from, m); },
      // Steps.
      [&](const ScalarsRequest& m) { parts_.progress.OnScalarsRequest(from, m); },
      [&](const Progress& m) {
        if (parts_.progress.OnProgress(now, envelope, m)) parts_.snapshots.OnCommitted(committed());
      },
      [&](const GradientHashes& m) { parts_.verification.OnGradientHashes(now, from, m); },
      // Results.
      [&](const EvaluationResult& m) {
        if (parts_.evaluations.OnEvaluationResult(now, m))
          parts_.final_weights.StartCollecting(now);
      },
      [&](const PinReleased& m) { parts_.evaluations.OnPinReleased(from, m); },
      [&](const SnapshotStored& m) { parts_.snapshots.OnSnapshotStored(now, from, m); },
      [&](const SnapshotAtAck& m) { parts_.requests.OnSnapshotAtAck(from, m); },
      [&](const Params& m) { parts_.final_weights.OnParams(now, from, m); },
      // People.
      [&](const StatusRequest&) { parts_.outbox.Send(from, StatusReport{StatusJson(now)}); },
      [&](const Command& m) { parts_.commands.OnCommand(now, from, m); });
}

// ---- the clock ---------------------------------------------------------------------------------

void Scheduler::Tick(Micros now) {
  if (is_finished() || is_fenced()) return;
  Begin(now);
  parts_.membership.Tick(now);
  parts_.commands.StopDrained(now);
  if (parts_.phase.is_running()) {
    parts_.votes.Tick(now);
    parts_.owners.Tick(now);
    MakeViews(now);
    parts_.verification.Tick(now);
    parts_.snapshots.Tick(now, parts_.verification.settled_below());
    parts_.commands.ConcludeSnapshots(now);
    parts_.last_snapshot.Tick(now);
  }
  if (parts_.phase.is_training()) {
    if (parts_.evaluations.StartDue(now)) parts_.final_weights.StartCollecting(now);
    parts_.evaluations.HandOutSlices();
  }
  parts_.final_weights.Tick(now);
  if (parts_.outbox.TakeRepeat(now)) RepeatUnanswered(now);
  parts_.phase.FinishWhenLeft(now, parts_.members.all().empty());
  const std::vector<FaultRecord> faults = parts_.faults.TakeChanged();
  if (!faults.empty()) parts_.outbox.MarkChanged();
  parts_.stalls.Tick(now);
  parts_.outbox.Flush();
  if (is_fenced()) return;
  for (const FaultRecord& fault : faults) parts_.observer.OnFault(now, fault);
  parts_.snapshots.ReportDropped(now);
}

void Scheduler::RepeatUnanswered(Micros now) {
  if (parts_.phase.is_ending()) return parts_.membership.RepeatStop();
  const bool repeats_view = parts_.publisher.TakeRepeat(now);
  for (const auto& [node, member] : parts_.members.all()) {
    const bool has_view =
        parts_.phase.is_running() && member.takes_part() && parts_.views.HasAnnounced();
    for (const PeerId& lane : member.Peers()) {
      if (parts_.membership.RepeatDrained(member, lane) || !has_view) continue;
      if (repeats_view) parts_.publisher.RepeatTo(lane);
      if (member.role() != Role::kServer) continue;
      parts_.evaluations.RepeatTo(lane);
      parts_.requests.RepeatTo(lane);
    }
  }
  parts_.final_weights.Repeat(now);
  parts_.evaluations.RepeatSlices();
  parts_.votes.Repeat();
}

Micros Scheduler::NextDeadline() const {
  if (is_finished() || is_fenced()) return kNever;
  return std::min({parts_.outbox.repeat_at(), parts_.membership.NextDeadline(),
                   parts_.view_maker.NextDeadline(), parts_.last_snapshot.NextDeadline(),
                   parts_.phase.NextDeadline(), parts_.votes.NextDeadline(),
                   parts_.stalls.NextDeadline()});
}

// ---- generations and views ---------------------------------------------------------------------

void Scheduler::OnMemberReady(Micros now) {
  if (parts_.phase.is_gathering() && parts_.view_maker.IsComplete()) {
    parts_.phase.StartTraining(now);
    StartGeneration(now);
    const uint64_t steps = parts_.plan.steps.step_count();
    parts_.outbox.Tell(now, "training", "", "all processes are ready; {} steps", steps);
    if (view().generation != 0) {
      parts_.outbox.TellNotable(
          now, "resumed", "", "{}",
          view().restore == SnapshotRef{}
              ? "the run has no snapshot and restarts at step 0"
              : fmt::format("the run continues from the snapshot of version {} of {}",
                            view().restore.version.value(), steps));
    }
  }
  if (parts_.phase.is_running()) parts_.view_maker.RequestSoon(now);
}

// Begins the generation of a planned rollback, and makes the view that is due.
void Scheduler::MakeViews(Micros now) {
  if (parts_.view_maker.MayRollBack(now)) {
    const std::string reason = parts_.phase.RollBack();
    StartGeneration(now);
    parts_.outbox.TellNotable(now, "rollback", "", "generation {} begins from version {} ({})",
                              view().generation, view().restore.version.value(), reason);
  }
  std::optional<View> next = parts_.view_maker.MakeDue(now);
  if (!next) return;
  if (parts_.publisher.IsNews(*next)) return Publish(now, *std::move(next));
  parts_.faults.OnView(view().id);  // the lost members had no work
}

void Scheduler::StartGeneration(Micros now) {
  View next = parts_.view_maker.MakeFirst(now);
  parts_.progress.StartGeneration(next.restore.version);
  parts_.verification.StartGeneration(StepUpdating(next.restore.version));
  parts_.snapshots.ledger().StartGeneration(next.generation, next.restore);
  parts_.silences.StartGeneration();
  parts_.votes.StartGeneration();
  parts_.evaluations.StartGeneration();
  parts_.requests.StartGeneration(now);
  parts_.final_weights.StartGeneration();
  parts_.faults.OnRollback();
  Publish(now, std::move(next));
}

void Scheduler::Publish(Micros now, View next) {
  parts_.publisher.Publish(now, std::move(next));
  parts_.ownership.OnView();
  parts_.final_weights.OnView(now);
  parts_.progress.OnView();
  parts_.evaluations.OnView();
  parts_.owners.OnView(now);
  parts_.faults.OnView(view().id);
}

// ---- what several parts know -------------------------------------------------------------------

SchedulerState Scheduler::State() const {
  return {.job = parts_.outbox.job(),
          .term = parts_.views.term(),
          .next_node = parts_.membership.next_node(),
          .view = view(),
          .holders = parts_.ownership.holders(),
          .members = parts_.members.Records(),
          .snapshots = parts_.snapshots.ledger().complete(),
          .given_up = parts_.snapshots.ledger().given_up(),
          .evaluations = parts_.history.all(),
          .faults = parts_.faults.records(),
          .verification = parts_.verification.State(),
          .distrusted_machines = parts_.votes.distrusted_machines(),
          .is_completed = parts_.phase.is_completed()};
}

void Scheduler::OnForget(const Member& member) {
  parts_.claims.Forget(member);
  parts_.silences.Forget(member.peer.node);
  parts_.votes.Forget(member);
  parts_.commands.Forget(member);
  parts_.evaluations.Forget(member);
  parts_.ownership.Forget(member);
  parts_.owners.Forget(member.peer.node);
  parts_.requests.Forget(member);
  parts_.publisher.Forget(member);
  parts_.stalls.OnForget(member);
}

}  // namespace pando
