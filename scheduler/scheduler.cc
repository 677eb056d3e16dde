// The scheduler's core: how it begins, whom it listens to, how it speaks, the clock.
#include "scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "common/mutation.h"
#include "proto/is_one_of.h"

namespace pando {
namespace {

constexpr Micros kControlRetry = std::chrono::milliseconds(200);
// P25 left out: how long a view is announced before it is in the journal.
constexpr Micros kLateJournal = std::chrono::milliseconds(100);

// From processes that are not members yet, or never will be.
bool IsOpenToAll(const Message& message) {
  return IsOneOf<Register, StatusRequest, Command, FaultNote>(message);
}

// Of versions, which another generation may have made again (P21).
bool IsOfGeneration(const Message& message) {
  return IsOneOf<Progress, Synced, Divergence, PeerSilent, SnapshotStored, SnapshotAtAck,
                 EvaluationResult, PinReleased, Params, GradientHashes, RestoreFailed>(message);
}

uint32_t GenerationOf(const std::optional<SchedulerState>& state) {
  return state ? state->view.generation : 0;
}

SnapshotRef OriginOf(const std::optional<SchedulerState>& state) {
  return state ? state->view.restore : SnapshotRef{};
}

}  // namespace

Scheduler::Scheduler(Options options, const JobPlan& plan, Journal& journal, RunObserver& observer,
                     Outbox& outbox)
    : options_(std::move(options)),
      plan_(plan),
      journal_(journal),
      observer_(observer),
      outbox_(outbox),
      schedule_(plan.job.optimizer, plan.job.schedule, plan.steps.step_count()),
      faults_(options_.started_at,
              options_.state ? options_.state->faults : std::vector<FaultRecord>()),
      bad_pictures_(plan.job.bad_pictures_max),
      next_row_(options_.next_row),
      verified_(plan),
      snapshots_({plan.shards.shard_count(), plan.job.snapshot_keep}, GenerationOf(options_.state),
                 OriginOf(options_.state),
                 options_.state ? options_.state->snapshots : std::vector<SnapshotManifest>(),
                 options_.state ? options_.state->given_up : GivenUpSnapshots()) {
  has_changed_ = true;  // at least the term (P26)
  Decide();
  if (!options_.state) return;
  const SchedulerState& state = *options_.state;
  term_ = state.term + 1;
  journal_term_ = term_;
  journal_view_ = state.view.id;
  next_node_ = state.next_node;
  view_ = state.view;
  committed_ = view_.restore.version;
  ResumeVerification(state.verification);
  bad_pictures_.AddAll(state.bad_pictures);
  evaluations_ = state.evaluations;
  for (const EvaluationSummary& done : evaluations_)
    evaluated_ = std::max(evaluated_, done.version);
  Decide();
  is_finished_ = state.is_finished;
  if (options_.is_fresh) return;
  for (const MemberRecord& record : state.members) {
    members_.Add(Member::From(record));
    unheard_.insert(record.peer.incarnation);
  }
  if (view_.id.number == 0) return;
  phase_ = Phase::kTraining;
  for (const MicroBatchOwner& owner : view_.owners) shared_among_.insert(owner.worker);
  IndexPrimaries();
}

// The first call that says what time it is. A scheduler that starts again lets everybody report
// before it says anything (P26); whoever is silent for a lease is dead.
void Scheduler::Begin(Micros now) {
  if (std::exchange(has_begun_, true)) return;
  for (auto& [node, member] : members_.all()) member.heard_at = now;
  heard_at_ = now;
  training_since_ = now;
  if (is_finished_) return End(now, StopReason::kCompleted, "completed");
  if (phase_ != Phase::kTraining) return;
  // What is committed it will hear soon; the last row that it recorded says about where it died.
  step_at_start_ = next_row_;
  faults_.OnDetected(now, {.target = "scheduler"}, "exit", "exit", StepReached());
  RequestView(now);
  Tell(now, "scheduler-restarted", "",
       "the scheduler is back, in term " + std::to_string(term_) + "; it knows " +
           std::to_string(members_.all().size()) + " processes",
       /*is_notable=*/true);
  if (dispute_ && dispute_->generation == view_.generation)  // there was no time to roll back
    PlanRollback(now, dispute_->first.name + " and " + dispute_->second.name + " had disagreed");
}

// ---- listening ---------------------------------------------------------------------------------

void Scheduler::OnMessage(Micros now, const Envelope& envelope) {
  if (finished() || fenced()) return;
  Begin(now);
  if (IsOpenToAll(envelope.message)) {
    const Incarnation wanted = envelope.receiver.incarnation;
    if (wanted != Incarnation(0) && wanted != options_.self.incarnation) return;
  } else if (!HearMember(now, envelope)) {
    return;
  }
  std::visit([&](const auto& message) { OnMessageOf(now, envelope, message); }, envelope.message);
}

void Scheduler::HearAnybody(Micros now) {
  heard_at_ = now;
  has_told_deafness_ = false;
}

// Members are heard whichever life of the scheduler they speak to: what they say are facts.
bool Scheduler::HearMember(Micros now, const Envelope& envelope) {
  if (envelope.receiver.node != kSchedulerNode || envelope.job != options_.job) return false;
  Member* member = members_.Find(envelope.sender.incarnation);
  if (member == nullptr) {
    const bool was_member =
        envelope.sender.node != kUnknownNode || given_up_.contains(envelope.sender.incarnation);
    if (was_member && !std::holds_alternative<Bye>(envelope.message))
      RefuseGivenUp(envelope.sender);
    return false;
  }
  HearAnybody(now);
  member->heard_at = now;
  member->suspected_at.reset();
  unheard_.erase(envelope.sender.incarnation);
  if (is_running() && !IsOurs(envelope.view, envelope.generation)) {
    OnNewsBeyond(now, *member, envelope.view, envelope.generation);
    return false;
  }
  return envelope.generation == view_.generation || !IsOfGeneration(envelope.message);
}

// ---- speaking ----------------------------------------------------------------------------------

void Scheduler::Send(const PeerId& to, Message message) {
  outgoing_.push_back({.job = options_.job,
                       .generation = view_.generation,
                       .view = view_.id,
                       .sender = options_.self,
                       .receiver = to,
                       .message = std::move(message)});
}

void Scheduler::RefuseGivenUp(const PeerId& to) {
  Send(to, Refused{"this process was given up as dead", RefusalKind::kGivenUp});
}

void Scheduler::Tell(Micros now, const char* name, const std::string& node, const std::string& text,
                     bool is_notable) {
  observer_.OnEvent(now, {name, node, text, is_notable});
}

SchedulerState Scheduler::State() const {
  SchedulerState state{.job = options_.job,
                       .term = term_,
                       .next_node = next_node_,
                       .view = view_,
                       .members = {},
                       .snapshots = snapshots_.complete(),
                       .given_up = snapshots_.given_up(),
                       .evaluations = evaluations_,
                       .faults = faults_.records(),
                       .verification = verification(),
                       .bad_pictures = bad_pictures_.list(),
                       .is_finished = is_finished_};
  for (const auto& [node, member] : members_.all()) state.members.push_back(member.Record());
  return state;
}

bool Scheduler::Commit() {
  if (fenced()) return false;
  journal_status_ = journal_.Commit(State());
  has_changed_ = false;
  journal_at_.reset();
  if (!fenced()) snapshots_.OnJournaled();
  return !fenced();
}

// P25: what is said stands on what is written.
void Scheduler::Flush(Micros now) {
  for (const FaultRecord& fault : faults_.TakeChanged()) {
    observer_.OnFault(now, fault);
    has_changed_ = true;
  }
  if (has_changed_ && Mutated(Mutation::kAnnounceBeforeJournal)) {
    if (!journal_at_) journal_at_ = now + kLateJournal;
    if (now >= *journal_at_) Commit();
  } else if (has_changed_) {
    Commit();
  }
  std::vector<Envelope> outgoing = std::exchange(outgoing_, {});
  if (fenced()) return;
  for (Envelope& envelope : outgoing) outbox_.Send(std::move(envelope));
  for (const SnapshotManifest& dropped : snapshots_.TakeDropped())
    observer_.OnSnapshotDropped(now, dropped);
}

// ---- the clock ---------------------------------------------------------------------------------

void Scheduler::Tick(Micros now) {
  if (finished() || fenced()) return;
  Begin(now);
  JudgeLeases(now);
  StopDrained(now);
  if (is_running()) {
    ConsiderSpeeds(now);
    if (rollback_ && unheard_.empty()) RollBackWhenPossible(now);
    if (IsViewDue(now)) MakeView(now);
    AdvanceVerification(now);
    CompleteSnapshots(now);
    WatchSnapshotRequest(now);
  }
  if (phase_ == Phase::kTraining) {
    StartDueEvaluation(now);
    HandOutSlices(now);
  }
  if (phase_ == Phase::kCollecting) FinishWhenComplete(now);
  if (now >= repeat_at_) {
    repeat_at_ = now + kControlRetry;
    RepeatControl(now);
  }
  if (phase_ == Phase::kStopping) LeaveWhenAllHave(now);
  Flush(now);
}

bool Scheduler::IsViewDue(Micros now) const {
  return !rollback_ && unheard_.empty() && view_due_at_ && now >= *view_due_at_;
}

void Scheduler::RepeatControl(Micros now) {
  if (phase_ == Phase::kStopping) return SendStop();
  for (auto& [node, member] : members_.all()) {
    for (const PeerId& peer : member.Peers()) RepeatTo(now, member, peer);
  }
  if (phase_ == Phase::kCollecting && now >= collect_again_at_) CollectAgain(now);
  if (!evaluation_) return;
  for (const Slice& slice : evaluation_->slices) {
    if (slice.result || slice.worker == kUnknownNode) continue;
    Send(members_.Find(slice.worker)->peer,
         Evaluate{evaluation_->version, slice.index, slice.first_sample, slice.last_sample});
  }
}

void Scheduler::RepeatTo(Micros, Member& member, const PeerId& peer) {
  if (member.is_leaving && !member.left_lanes.contains(peer.lane))
    return Send(peer, Stop{StopReason::kDrained, "drained"});
  if (!is_running() || !member.takes_part() || !has_announced()) return;
  if (member.acked_views[peer.lane] < view_.id) Send(peer, ViewUpdate{view_});
  if (member.role() != Role::kServer) return;
  if (member.released_pins[peer.lane] < evaluated_) Send(peer, ReleasePin{evaluated_});
  const bool is_asked = snapshot_request_ && !plan_.IsSnapshotDue(snapshot_request_->version);
  if (is_asked && member.snapshots_asked[peer.lane] < snapshot_request_->version)
    Send(peer, SnapshotAt{snapshot_request_->version});
}

Micros Scheduler::NextDeadline() const {
  if (finished() || fenced()) return kNever;
  const Micros lease = std::chrono::milliseconds(plan_.job.lease_ms);
  // Looking often enough that only a pause of our own is long against a lease (P27).
  Micros deadline = std::min(repeat_at_, ticked_at_ + lease / 4);
  for (const auto& [node, member] : members_.all()) {
    deadline = std::min(deadline, member.heard_at + LeaseOf(member) + Micros(1));
    if (member.suspected_at) deadline = std::min(deadline, *member.suspected_at + kSuspectGrace);
  }
  if (is_running() && !rollback_ && unheard_.empty())
    deadline = std::min(deadline, view_due_at_.value_or(kNever));
  if (phase_ == Phase::kStopping) deadline = std::min(deadline, stop_at_ + options_.stop_grace);
  return deadline;
}

}  // namespace pando
