#include "scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "proto/dispatch.h"
#include "proto/is_one_of.h"
#include "scheduler/status_json.h"

namespace pando {
namespace {

// Messages of processes that are not members yet, or never will be.
bool IsOpenToAll(const Message& message) {
  return IsOneOf<Register, StatusRequest, Command, FaultNote>(message);
}

// Messages about versions, which another generation may have made again (P21).
bool IsOfGeneration(const Message& message) {
  return IsOneOf<Progress, Synced, Divergence, PeerSilent, SnapshotStored, SnapshotAtAck,
                 EvaluationResult, PinReleased, Params, GradientHashes, RestoreFailed>(message);
}

using SchedulerIgnores =
    Ignored<Welcome, Refused, HeartbeatAck, ViewUpdate, Push, Pull, PushReply, Question, Answer,
            Scalars, ProgressAck, Evaluate, ReleasePin, Stop, StatusReport, Root, RootAck, Chunk,
            ChunkAck, SnapshotAck, SnapshotAt, GradientHashesAck, CommandReply, FaultNoteAck,
            Partials, PartialsPull>;

}  // namespace

Scheduler::Scheduler(const Options& options, const JobPlan& plan, Journal& journal,
                     RunObserver& observer, Outbox& outbox)
    : plan_(plan),
      views_(options.state),
      outbox_({options.self, options.job}, views_.view(), *this, journal, observer, outbox),
      phase_(outbox_, options.stop_grace, options.state && options.state->is_finished),
      faults_(options.started_at,
              options.state ? options.state->faults : std::vector<FaultRecord>()),
      history_(plan, options.state ? options.state->evaluations : std::vector<EvaluationSummary>()),
      progress_(plan, views_.view(), history_, options.next_row, faults_, observer, outbox_),
      membership_({options.job_toml, options.snapshot_dir, options.is_fresh}, plan, options.state,
                  {outbox_, phase_, views_, faults_, progress_, *this}),
      rollback_(membership_.members(), outbox_, phase_, views_),
      silences_(plan, {membership_, phase_, rollback_, outbox_, views_}),
      evaluations_(plan, {membership_.members(), views_, rollback_, history_, progress_, phase_,
                          observer, outbox_}),
      snapshots_(plan, !options.snapshot_dir.empty(), options.state,
                 {membership_.members(), views_.view(), phase_, rollback_, progress_, history_,
                  observer, outbox_}),
      verification_(plan, options.state,
                    {membership_, views_, phase_, rollback_, progress_, history_, evaluations_,
                     snapshots_, observer, outbox_}),
      owners_(plan,
              {membership_.members(), views_, rollback_, silences_, progress_, verification_}),
      commands_(plan, {membership_, views_, phase_, rollback_, progress_, evaluations_, snapshots_,
                       outbox_}),
      final_weights_(plan, {views_.view(), rollback_, history_, verification_, snapshots_, faults_,
                            phase_, observer, outbox_}),
      view_maker_(plan, {membership_, views_, phase_, rollback_, silences_, owners_, progress_,
                         evaluations_, final_weights_, faults_, outbox_}),
      generations_(plan, {membership_, views_, phase_, rollback_, silences_, progress_,
                          evaluations_, snapshots_, commands_.requests(), verification_, owners_,
                          final_weights_, view_maker_, faults_, outbox_}),
      failures_(plan, {membership_, views_, phase_, progress_, faults_, observer, outbox_}) {
  const bool was_training = options.state && !options.is_fresh && view().id.number != 0;
  if (!was_training) return;
  phase_.Resume();
  owners_.Resume();
  progress_.OnView();
}

// The first call that knows the time. A scheduler that starts again lets every member report before
// it sends a view (P26); a member that is silent for a lease is dead.
void Scheduler::Begin(Micros now) {
  if (!membership_.Begin(now)) return;
  phase_.StartClock(now);
  if (phase_.is_completed()) return End(now, StopReason::kCompleted, "completed");
  if (!phase_.is_training()) return;
  progress_.OnRestart();
  faults_.OnDetected(now, {.target = "scheduler"}, "exit", "exit", progress_.StepReached());
  views_.RequestView(now);
  outbox_.Tell(now, "scheduler-restarted", "",
               "the scheduler has restarted, in term " + std::to_string(views_.term()) + ", with " +
                   std::to_string(membership_.members().all().size()) + " processes",
               /*is_notable=*/true);
  verification_.OnRestart(now);
}

// ---- messages ----------------------------------------------------------------------------------

void Scheduler::OnMessage(Micros now, const Envelope& envelope) {
  if (finished() || fenced()) return;
  Begin(now);
  if (IsForUs(now, envelope)) Route(now, envelope);
}

bool Scheduler::IsForUs(Micros now, const Envelope& envelope) {
  if (IsOpenToAll(envelope.message)) {
    const Incarnation wanted = envelope.receiver.incarnation;
    return wanted == Incarnation(0) || wanted == outbox_.self().incarnation;
  }
  if (envelope.receiver.node != kSchedulerNode || envelope.job != outbox_.job()) return false;
  const Member* member = membership_.OnHeard(now, envelope);
  if (member == nullptr) return false;
  if (phase_.is_running() && !views_.IsOurs(envelope.view, envelope.generation)) {
    rollback_.OnNewsBeyond(now, *member, envelope.view, envelope.generation);
    return false;
  }
  return envelope.generation == view().generation || !IsOfGeneration(envelope.message);
}

void Scheduler::Route(Micros now, const Envelope& envelope) {
  const PeerId& from = envelope.sender;
  Dispatch(
      envelope.message, SchedulerIgnores(),
      // Members.
      [&](const Register& m) { membership_.OnRegister(now, from, m); },
      [&](const Ready& m) {
        if (membership_.OnReady(now, from, m)) generations_.OnMemberReady(now);
      },
      [&](const Heartbeat& m) {
        membership_.OnHeartbeat(from, m);
        owners_.OnHeartbeat(membership_.members().Find(from.incarnation)->peer.node, m);
      },
      [&](const Bye&) { membership_.OnBye(from); },
      [&](const Leave&) { commands_.OnLeave(now, from); },
      [&](const Failure& m) { failures_.OnFailure(now, envelope, m); },
      [&](const FaultNote& m) { failures_.OnFaultNote(now, from, m); },
      [&](const PeerSilent& m) { silences_.OnPeerSilent(now, from, m); },
      // Views.
      [&](const ViewAck& m) { view_maker_.OnViewAck(now, envelope, m); },
      [&](const Synced& m) { view_maker_.OnSynced(now, from, m); },
      [&](const Divergence& m) { rollback_.OnDivergence(now, from, m); },
      [&](const RestoreFailed& m) { generations_.OnRestoreFailed(now, from, m); },
      // Steps.
      [&](const ScalarsRequest& m) { progress_.OnScalarsRequest(from, m); },
      [&](const Progress& m) {
        if (progress_.OnProgress(now, envelope, m)) generations_.OnCommitted(committed());
      },
      [&](const GradientHashes& m) { verification_.OnGradientHashes(now, from, m); },
      // Results.
      [&](const EvaluationResult& m) {
        if (evaluations_.OnEvaluationResult(now, m)) final_weights_.StartCollecting(now);
      },
      [&](const PinReleased& m) { evaluations_.OnPinReleased(from, m); },
      [&](const SnapshotStored& m) { snapshots_.OnSnapshotStored(now, from, m); },
      [&](const SnapshotAtAck& m) { commands_.requests().OnSnapshotAtAck(from, m); },
      [&](const Params& m) { final_weights_.OnParams(now, m); },
      // People.
      [&](const StatusRequest&) { outbox_.Send(from, StatusReport{StatusJson(now)}); },
      [&](const Command& m) { commands_.OnCommand(now, from, m); });
}

// ---- the clock ---------------------------------------------------------------------------------

void Scheduler::Tick(Micros now) {
  if (finished() || fenced()) return;
  Begin(now);
  membership_.Tick(now);
  commands_.StopDrained(now);
  if (phase_.is_running()) {
    owners_.Tick(now);
    generations_.Tick(now);
    view_maker_.Tick(now);
    verification_.Tick(now);
    snapshots_.Tick(now, verification_.settled_below());
    commands_.ConcludeSnapshots(now);
  }
  if (phase_.is_training()) {
    if (evaluations_.StartDue(now)) final_weights_.StartCollecting(now);
    evaluations_.HandOutSlices();
  }
  final_weights_.Tick(now);
  if (outbox_.TakeRepeat(now)) RepeatUnanswered(now);
  phase_.FinishWhenLeft(now, membership_.members().all().empty());
  failures_.ReportFaults(now);
  outbox_.Flush(now);
  if (!fenced()) snapshots_.ReportDropped(now);
}

void Scheduler::RepeatUnanswered(Micros now) {
  if (phase_.is_ending()) return membership_.RepeatStop();
  for (const auto& [node, member] : membership_.members().all()) {
    const bool has_view = phase_.is_running() && member.takes_part() && views_.HasAnnounced();
    for (const PeerId& lane : member.Peers()) {
      if (membership_.RepeatDrained(member, lane) || !has_view) continue;
      view_maker_.RepeatTo(lane);
      if (member.role() != Role::kServer) continue;
      evaluations_.RepeatTo(lane);
      commands_.requests().RepeatTo(lane);
    }
  }
  final_weights_.Repeat(now);
  evaluations_.RepeatSlices();
}

Micros Scheduler::NextDeadline() const {
  if (finished() || fenced()) return kNever;
  return std::min({outbox_.repeat_at(), membership_.NextDeadline(), view_maker_.NextDeadline(),
                   phase_.NextDeadline()});
}

// ---- what several parts know -------------------------------------------------------------------

SchedulerState Scheduler::State() const {
  return {.job = outbox_.job(),
          .term = views_.term(),
          .next_node = membership_.next_node(),
          .view = view(),
          .members = membership_.members().Records(),
          .snapshots = snapshots_.ledger().complete(),
          .given_up = snapshots_.ledger().given_up(),
          .evaluations = history_.all(),
          .faults = faults_.records(),
          .verification = verification_.State(),
          .is_finished = phase_.is_completed()};
}

void Scheduler::OnForget(const Member& member) {
  silences_.Forget(member.peer.node);
  commands_.Forget(member);
  evaluations_.Forget(member);
  owners_.Forget(member.peer.node);
  commands_.requests().Forget(member);
  view_maker_.Forget(member);
}

std::string Scheduler::StatusJson(Micros now) const {
  return pando::StatusJson(now, {plan_, phase_, views_, membership_, progress_, history_,
                                 verification_, snapshots_, owners_, view_maker_, faults_});
}

}  // namespace pando
