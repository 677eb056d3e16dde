#include "worker/allreduce/group_session.h"

#include <algorithm>
#include <utility>

#include "proto/dispatch.h"

namespace pando {
namespace {

constexpr Micros kPullRetry = std::chrono::milliseconds(500);
using GroupSessionIgnores =
    Ignored<Register, Welcome, Ready, Heartbeat, HeartbeatAck, ViewAck, Push, Pull, PushReply,
            Question, Answer, ScalarsRequest, Scalars, Progress, ProgressAck, EvaluationResult,
            ReleasePin, PinReleased, Bye, Failure, StatusRequest, StatusReport, Root, RootAck,
            Chunk, ChunkAck, Synced, Divergence, PeerSilent, SnapshotStored, SnapshotAck,
            SnapshotAt, SnapshotAtAck, Leave, GradientHashes, GradientHashesAck, Command,
            CommandReply, FaultNote, FaultNoteAck, RestoreFailed, Partials, PartialsPull>;

bool HasAll(const std::vector<bool>& arrived) {
  return std::ranges::find(arrived, false) == arrived.end();
}

bool AreSame(const MicroBatchOwner& a, const MicroBatchOwner& b) { return a.worker == b.worker; }
bool AreSame(const ShardPlacement& a, const ShardPlacement& b) { return a.primary == b.primary; }
template <class T>
bool AreSame(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(a, b, [](const T& x, const T& y) { return AreSame(x, y); });
}

}  // namespace

GroupSession::GroupSession(const Options& options, const JobPlan& plan, ComputePort& compute,
                           GroupPort& port, Outbox& outbox)
    : plan_(plan),
      compute_(compute),
      port_(port),
      member_(options.identity, outbox),
      lifecycle_(options.ready, compute, member_),
      steps_(plan, member_, group_, compute),
      evaluation_(
          {.test_samples = plan.data.test_samples, .shard_count = plan.shards.shard_count()},
          compute, member_, *this),
      arrived_(plan.shards.shard_count()) {}

// ---- what comes in -----------------------------------------------------------------------------

void GroupSession::OnMessage(Micros now, const Envelope& envelope) {
  if (finished() || !member_.Admit(now, envelope)) return;
  const PeerId& from = envelope.sender;
  Dispatch(
      envelope.message, GroupSessionIgnores(),
      [&](const ViewUpdate& update) { OnViewUpdate(now, from, update); },
      [&](const Params& params) { OnParams(now, params); },
      [&](const Evaluate& request) {
        if (group_) evaluation_.OnEvaluate(now, request);
      },
      [&](const Stop& stop) { lifecycle_.OnStop(from, stop); },
      [&](const Refused& refused) { lifecycle_.OnRefused(refused); });
}

void GroupSession::OnComputeEvent(Micros now, ComputeEvent event) {
  if (finished()) return;
  std::visit(Overloaded{
                 [&](const StepComputed&) { steps_.OnStepComputed(now); },
                 [&](const EvaluationResult& result) { evaluation_.OnEvaluationResult(result); },
                 [&](const ComputeFailed& failed) { OnComputeFailed(now, failed); },
                 // Gradients go to the exchange; the rest is not asked for.
                 [](const GradientReady&) {},
                 [](const GradientHashed&) {},
                 [](const ParametersWanted&) {},
             },
             event);
}

// ---- the view ----------------------------------------------------------------------------------

bool GroupSession::WillEnter(const Envelope& envelope) const {
  if (!member_.WillEnter(envelope)) return false;
  return std::get<ViewUpdate>(envelope.message).view.shards.size() == arrived_.size();
}

void GroupSession::OnViewUpdate(Micros now, const PeerId& from, const ViewUpdate& update) {
  if (update.view.shards.size() != arrived_.size() || !member_.Enter(from, update.view)) return;
  if (!group_) return JoinGroup(now);
  if (!IsSameGroup()) OnBroken(now, Unavailable("allreduce: the group of workers has changed"));
}

void GroupSession::JoinGroup(Micros now) {
  const View& view = member_.view();
  const auto is_self = [&](const NodeInfo& node) {
    return node.incarnation == member_.self().incarnation;
  };
  if (std::ranges::none_of(view.nodes, is_self)) return;
  group_ = view;
  lifecycle_.SetMember(true);
  steps_.Join();
  agreed_ = first_version();
  pull_at_ = now;
}

// A scheduler that is started again names the same group in its own view.
bool GroupSession::IsSameGroup() const {
  const View& view = member_.view();
  return view.generation == group_->generation && AreSame(view.owners, group_->owners) &&
         AreSame(view.shards, group_->shards);
}

// ---- steps -------------------------------------------------------------------------------------

void GroupSession::OnParams(Micros now, const Params& params) {
  for (const ParamsItem& item : params.items) {
    const uint32_t s = item.shard.value();
    if (!group_ || s >= arrived_.size()) continue;
    if (item.payload.floats().size() != plan_.shards.range(item.shard).size()) continue;
    evaluation_.OnParams(now, item);
    if (!has_begun_ && item.version == first_version() && !arrived_[s]) {
      arrived_[s] = true;
      compute_.ParametersArrived(item.shard, item.version, item.payload);
    }
  }
  if (!group_ || has_begun_ || !HasAll(arrived_)) return;
  has_begun_ = true;
  steps_.OnBegun(now);
  port_.Begin(*group_);
  steps_.Advance();
}

void GroupSession::OnMade(Micros now, ShardId shard, Version version) {
  if (finished() || !has_begun_ || !steps_.OnMade(now, shard, version)) return;
  port_.OnVersion(version);
  steps_.Advance();
}

// ---- evaluation (P31) --------------------------------------------------------------------------

void GroupSession::OnAgreed(Micros, Version version) {
  agreed_ = std::max(agreed_, version);
  evaluation_.Report();
}

// So a run cannot end whose ranks have come to differ.
bool GroupSession::MayReport(const EvaluationResult& result) const {
  return result.version <= agreed_;
}

void GroupSession::Pull(Micros, const std::vector<PullItem>& items) {
  member_.Send(group_->shards.front().primary, pando::Pull{items});
}

// ---- the end -----------------------------------------------------------------------------------

void GroupSession::OnBroken(Micros now, const Status& failure) {
  if (finished() || lifecycle_.failure() || broken_) return;
  if (failure.code() == StatusCode::kInternal)
    return Fail(now, {failure.message(), FailureKind::kTraining});
  broken_ = failure.message();
  broken_told_at_ = now + 2 * std::chrono::milliseconds(plan_.job.lease_ms);
}

void GroupSession::OnComputeFailed(Micros now, const ComputeFailed& failed) {
  lifecycle_.OnComputeFailed(failed);
  lifecycle_.ReportAt(now);
}

void GroupSession::Fail(Micros now, Failure failure) {
  lifecycle_.Fail(std::move(failure));
  lifecycle_.ReportAt(now);
}

// ---- the clock ---------------------------------------------------------------------------------

void GroupSession::Tick(Micros now) {
  if (finished()) return;
  if (broken_ && !lifecycle_.failure() && now >= broken_told_at_)
    Fail(now, {*broken_, FailureKind::kMachine});
  lifecycle_.Tick(now);
  PullStart(now);
  evaluation_.Tick(now);
}

void GroupSession::PullStart(Micros now) {
  if (!group_ || has_begun_ || now < pull_at_) return;
  std::vector<PullItem> missing;
  for (uint32_t s = 0; s < arrived_.size(); ++s) {
    if (!arrived_[s]) missing.push_back({ShardId(s), first_version()});
  }
  Pull(now, missing);
  pull_at_ = now + kPullRetry;
}

Micros GroupSession::NextDeadline() const {
  if (finished()) return kNever;
  Micros deadline = lifecycle_.NextDeadline();
  if (broken_ && !lifecycle_.failure()) deadline = std::min(deadline, broken_told_at_);
  if (group_ && !has_begun_) deadline = std::min(deadline, pull_at_);
  return std::min(deadline, evaluation_.NextDeadline());
}

Heartbeat GroupSession::CurrentActivity(Micros now) const {
  Heartbeat heartbeat;
  heartbeat.step = StepReading(steps_.whole());
  if (finished() || lifecycle_.is_leaving()) {
    heartbeat.activity = Activity::kLeaving;
  } else if (!has_begun_) {
    heartbeat.activity = Activity::kStarting;
  } else if (evaluation_.is_running()) {
    heartbeat.activity = Activity::kEvaluating;
  } else if (steps_.is_waiting()) {
    // The lowest step's work is done here. The peers' heartbeats show which rank the sum waits for.
    heartbeat.activity = Activity::kWaitingForParameters;
    heartbeat.waiting_ms = static_cast<uint64_t>((now - steps_.waiting_since()).count()) / 1000;
  } else {
    heartbeat.activity = Activity::kComputing;
  }
  return heartbeat;
}

}  // namespace pando
