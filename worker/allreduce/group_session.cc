#include "worker/allreduce/group_session.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "proto/assignment.h"

namespace pando {
namespace {

constexpr Micros kControlRetry = std::chrono::milliseconds(200);
constexpr Micros kPullRetry = std::chrono::milliseconds(500);
// Steps handed out beyond the last whole version: threads that are done with one step begin the
// next, layer by layer.
constexpr uint64_t kStepsInHandMax = 2;

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
    : ready_(options.ready),
      plan_(plan),
      compute_(compute),
      port_(port),
      member_(options.identity, outbox),
      arrived_(plan.shards.shard_count()),
      made_(plan.shards.shard_count()) {}

void GroupSession::OnMessage(Micros now, const Envelope& envelope) {
  if (finished() || !member_.Admit(now, envelope)) return;
  std::visit([&](const auto& message) { OnMessageOf(now, envelope.sender, message); },
             envelope.message);
}

// ---- the view ----------------------------------------------------------------------------------

bool GroupSession::WillEnter(const Envelope& envelope) const {
  if (!member_.WillEnter(envelope)) return false;
  return std::get<ViewUpdate>(envelope.message).view.shards.size() == made_.size();
}

void GroupSession::OnMessageOf(Micros now, const PeerId& from, const ViewUpdate& update) {
  if (update.view.shards.size() != made_.size() || !member_.Enter(from, update.view)) return;
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
  std::ranges::fill(made_, FirstVersion());
  whole_ = agreed_ = FirstVersion();
  next_ = StepReading(FirstVersion());
  pull_at_ = now;
}

// A scheduler that is started again names the same group in a view of its own.
bool GroupSession::IsSameGroup() const {
  const View& view = member_.view();
  return view.generation == group_->generation && AreSame(view.owners, group_->owners) &&
         AreSame(view.shards, group_->shards);
}

// ---- steps -------------------------------------------------------------------------------------

std::vector<MicroBatch> GroupSession::ShareOf(Step step) const {
  return AssignedTo(*group_, member_.self().node, step, plan_.steps.Tree(step));
}

void GroupSession::OnMessageOf(Micros now, const PeerId&, const Params& params) {
  for (const ParamsItem& item : params.items) {
    const uint32_t s = item.shard.value();
    if (!group_ || s >= made_.size()) continue;
    if (item.payload.floats().size() != plan_.shards.range(item.shard).size()) continue;
    if (evaluation_ && item.version == evaluation_->version && !evaluation_->arrived[s]) {
      evaluation_->arrived[s] = true;
      compute_.EvaluationParametersArrived(item.shard, item.version, item.payload);
    }
    if (!has_begun_ && item.version == FirstVersion() && !arrived_[s]) {
      arrived_[s] = true;
      compute_.ParametersArrived(item.shard, item.version, item.payload);
    }
  }
  if (!group_ || has_begun_ || !HasAll(arrived_)) return;
  has_begun_ = true;
  waiting_since_ = now;
  port_.Begin(*group_);
  AdvanceWork();
}

void GroupSession::OnMade(Micros now, ShardId shard, Version version) {
  Version& made = made_[shard.value()];
  if (finished() || !has_begun_) return;
  PANDO_CHECK(version == VersionMadeBy(StepReading(made)));
  made = version;
  if (*std::ranges::min_element(made_) != version) return;
  whole_ = version;
  waiting_since_ = now;
  port_.OnVersion(version);
  AdvanceWork();
}

void GroupSession::AdvanceWork() {
  const Step end(std::min(whole_.value() + kStepsInHandMax, plan_.steps.step_count()));
  for (; next_ < end; next_ = NextStep(next_)) {
    std::vector<MicroBatch> share = ShareOf(next_);
    if (share.empty()) continue;  // a short batch has none for us
    ++open_calls_;
    compute_.Compute(next_, std::move(share));
  }
}

void GroupSession::OnComputeEvent(Micros now, ComputeEvent event) {
  if (!finished()) std::visit([&](auto& e) { OnEventOf(now, e); }, event);
}

void GroupSession::OnEventOf(Micros now, StepComputed&) {
  PANDO_CHECK(open_calls_ > 0);
  --open_calls_;
  waiting_since_ = now;
}

void GroupSession::OnEventOf(Micros now, ComputeFailed& failed) {
  const StatusCode code = failed.status.code();
  const bool is_of_all = code == StatusCode::kInternal || code == StatusCode::kCorrupt;
  failure_ =
      Failure{failed.status.message(), is_of_all ? FailureKind::kTraining : FailureKind::kMachine};
  control_at_ = now;
}

// ---- bad pictures ------------------------------------------------------------------------------

void GroupSession::OnEventOf(Micros now, BadPicturesFound& found) {
  ++unsettled_events_;
  bad_pictures_.Add(now, found.pictures);
  if (bad_pictures_.is_settled()) port_.OnPicturesSettled(std::exchange(unsettled_events_, 0));
}

void GroupSession::OnMessageOf(Micros, const PeerId&, const PicturesReplacedAck& ack) {
  const bool was_settled = bad_pictures_.is_settled();
  bad_pictures_.Acknowledge(ack.names);
  if (was_settled || !bad_pictures_.is_settled()) return;
  port_.OnPicturesSettled(std::exchange(unsettled_events_, 0));
  TellResult();
}

// ---- evaluation (P31) --------------------------------------------------------------------------

void GroupSession::OnMessageOf(Micros now, const PeerId&, const Evaluate& request) {
  const bool is_sound =
      request.first_sample <= request.last_sample && request.last_sample <= plan_.data.test_samples;
  if (!is_sound || !group_) return;
  if (!evaluation_ || evaluation_->version != request.version)
    evaluation_ = Evaluation{request.version, std::vector<bool>(made_.size()), {}, {}, now};
  const auto& last = evaluation_->last_result;
  if (last && last->slice == request.slice) {
    TellResult();
  } else if (!evaluation_->request || evaluation_->request->slice != request.slice) {
    evaluation_->request = request;
    compute_.EvaluateSlice(request);
  }
}

void GroupSession::OnEventOf(Micros, EvaluationResult& result) {
  if (!evaluation_ || evaluation_->version != result.version) return;
  evaluation_->request.reset();
  evaluation_->last_result = result;
  TellResult();
}

void GroupSession::OnAgreed(Micros, Version version) {
  agreed_ = std::max(agreed_, version);
  TellResult();
}

// So a run cannot end whose ranks have come to differ.
bool GroupSession::MayTell(const EvaluationResult& result) const {
  return bad_pictures_.is_settled() && result.version <= agreed_;
}

void GroupSession::TellResult() {
  if (!evaluation_ || !evaluation_->last_result || !MayTell(*evaluation_->last_result)) return;
  member_.SendToScheduler(*evaluation_->last_result);
}

// ---- the end -----------------------------------------------------------------------------------

void GroupSession::OnBroken(Micros now, const Status& failure) {
  if (finished() || failure_ || broken_) return;
  if (failure.code() == StatusCode::kInternal) {
    failure_ = Failure{failure.message(), FailureKind::kTraining};
    control_at_ = now;
    return;
  }
  broken_ = failure.message();
  broken_told_at_ = now + 2 * std::chrono::milliseconds(plan_.job.lease_ms);
}

void GroupSession::OnMessageOf(Micros, const PeerId& from, const Stop& stop) {
  member_.Send(from, Bye{});
  compute_.Abandon(Step(0));
  stop_ = stop;
}

void GroupSession::OnMessageOf(Micros, const PeerId&, const Refused& refused) {
  compute_.Abandon(Step(0));
  stop_ = Stop{StopReason::kFailed, refused.reason};
  refusal_ = refused.kind;
}

void GroupSession::Leave(Micros now) {
  is_leaving_ = true;
  control_at_ = now;
}

// ---- the clock ---------------------------------------------------------------------------------

void GroupSession::Tick(Micros now) {
  if (finished()) return;
  if (broken_ && !failure_ && now >= broken_told_at_) {
    failure_ = Failure{*broken_, FailureKind::kMachine};
    control_at_ = now;
  }
  RepeatControl(now);
  PullStart(now);
  PullForEvaluation(now);
}

void GroupSession::RepeatControl(Micros now) {
  if (now >= control_at_ && (!group_ || failure_ || is_leaving_)) {
    if (!group_) member_.SendToScheduler(ready_);
    if (failure_) member_.SendToScheduler(*failure_);
    if (is_leaving_) member_.SendToScheduler(pando::Leave{});
    control_at_ = now + kControlRetry;
  }
  if (auto found = bad_pictures_.TakeDue(now)) member_.SendToScheduler(*std::move(found));
}

void GroupSession::PullStart(Micros now) {
  if (!group_ || has_begun_ || now < pull_at_) return;
  Pull(FirstVersion(), arrived_);
  pull_at_ = now + kPullRetry;
}

void GroupSession::PullForEvaluation(Micros now) {
  if (!evaluation_ || !evaluation_->request || now < evaluation_->ask_at) return;
  const bool is_whole = HasAll(evaluation_->arrived);
  if (!is_whole) Pull(evaluation_->version, evaluation_->arrived);
  evaluation_->ask_at = is_whole ? kNever : now + kPullRetry;
}

void GroupSession::Pull(Version version, const std::vector<bool>& arrived) {
  pando::Pull pull;
  for (uint32_t s = 0; s < arrived.size(); ++s) {
    if (!arrived[s]) pull.items.push_back({ShardId(s), version});
  }
  member_.Send(Lane(), std::move(pull));
}

Micros GroupSession::NextDeadline() const {
  if (finished()) return kNever;
  Micros deadline = !group_ || failure_ || is_leaving_ ? control_at_ : kNever;
  if (broken_ && !failure_) deadline = std::min(deadline, broken_told_at_);
  if (group_ && !has_begun_) deadline = std::min(deadline, pull_at_);
  if (evaluation_ && evaluation_->request) deadline = std::min(deadline, evaluation_->ask_at);
  return std::min(deadline, bad_pictures_.NextDeadline());
}

Heartbeat GroupSession::CurrentActivity(Micros now) const {
  Heartbeat heartbeat;
  heartbeat.step = StepReading(whole_);
  if (stop_ || is_leaving_) {
    heartbeat.activity = Activity::kLeaving;
  } else if (!has_begun_) {
    heartbeat.activity = Activity::kStarting;
  } else if (evaluation_ && evaluation_->request) {
    heartbeat.activity = Activity::kEvaluating;
  } else if (open_calls_ < next_.value() - whole_.value()) {
    // The lowest step's work is done here; whom the sum waits for the peers' own heartbeats show.
    heartbeat.activity = Activity::kWaitingForParameters;
    heartbeat.waiting_ms = static_cast<uint64_t>((now - waiting_since_).count()) / 1000;
  } else {
    heartbeat.activity = Activity::kComputing;
  }
  return heartbeat;
}

}  // namespace pando
