#include "worker/allreduce/group_session.h"

#include <algorithm>

#include "common/check.h"
#include "proto/assignment.h"
#include "proto/dispatch.h"

namespace pando {
namespace {

constexpr Micros kPullRetry = std::chrono::milliseconds(500);
}  // namespace

GroupSession::GroupSession(const Options& options, const JobPlan& plan, ComputePort& compute,
                           GroupPort& port, Outbox& outbox)
    : WorkerCore(options.identity, options.ready, plan, compute, outbox),
      port_(port),
      steps_(plan, member_, group_, compute),
      evaluation_(
          {.test_samples = plan.data.test_samples, .shard_count = plan.shards.shard_count()},
          compute, member_, *this),
      arrived_(plan.shards.shard_count()) {}

void GroupSession::OnMessage(Micros now, const Envelope& envelope) {
  if (finished() || !member_.Admit(now, envelope)) return;
  const PeerId& from = envelope.sender;
  Dispatch<Core::kGroup>(
      envelope.message, [&](const ViewUpdate&) { OnView(now, envelope); },
      [&](const ViewDelta&) { OnView(now, envelope); },
      [&](const ViewWanted&) { member_.OnViewWanted(now, envelope); },
      [&](const ViewHint&) { member_.OnHint(now, envelope); },
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
                 [&](const ComputeFailed& failed) {
                   lifecycle_.OnComputeFailed(failed);
                   lifecycle_.ReportAt(now);
                 },
                 // Gradients go to the exchange. Nothing asks for the other events.
                 [](const GradientReady&) {},
                 [](const GradientHashed&) {},
                 [](const ParametersWanted&) {},
             },
             event);
}

void GroupSession::OnView(Micros now, const Envelope& envelope) {
  if (!member_.OnView(now, envelope)) return;
  if (!group_) return JoinGroup(now);
  if (!IsSameGroup()) OnBroken(now, Unavailable("allreduce: the group of workers has changed"));
}

void GroupSession::JoinGroup(Micros now) {
  if (!member_.is_in_view()) return;
  group_ = member_.view();
  lifecycle_.SetMember(true);
  steps_.Join();
  agreed_ = first_version();
  pull_at_ = now;
}

// A restarted scheduler names the same group in its own view.
bool GroupSession::IsSameGroup() const {
  const View& view = member_.view();
  return view.generation == group_->generation &&
         std::ranges::equal(view.owners, group_->owners, {}, &MicroBatchOwner::worker,
                            &MicroBatchOwner::worker) &&
         std::ranges::equal(view.shards, group_->shards, {}, &ShardPlacement::primary,
                            &ShardPlacement::primary);
}

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
  if (!group_ || has_begun_ || std::ranges::count(arrived_, false) > 0) return;
  has_begun_ = true;
  steps_.OnBegun(now);
  port_.Begin(*group_);
  steps_.Advance();
}

void GroupSession::OnBroken(Micros now, const Status& failure) {
  if (finished() || lifecycle_.failure() || broken_) return;
  if (failure.code() == StatusCode::kInternal)
    return Fail(now, {failure.message(), FailureKind::kTraining});
  broken_ = failure.message();
  broken_told_at_ = now + 2 * std::chrono::milliseconds(plan_.job.lease_ms);
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
  heartbeat.step = StepUpdating(steps_.whole());
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

void GroupSteps::Advance() {
  const Step end(std::min(whole_.value() + kInHandMax, plan_.steps.step_count()));
  for (; next_ < end; next_ = NextStep(next_)) {
    std::vector<MicroBatch> share =
        AssignedTo(*group_, member_.self().node, next_, plan_.steps.Tree(next_));
    if (share.empty()) continue;  // a short batch has none for us
    ++open_calls_;
    compute_.Compute(next_, std::move(share));
  }
}

void GroupSteps::OnStepComputed(Micros now) {
  PANDO_CHECK(open_calls_ > 0);
  --open_calls_;
  waiting_since_ = now;
}

bool GroupSteps::OnMade(Micros now, ShardId shard, Version version) {
  Version& made = made_[shard.value()];
  PANDO_CHECK(version == VersionMadeBy(StepUpdating(made)));
  made = version;
  if (*std::ranges::min_element(made_) != version) return false;
  whole_ = version;
  waiting_since_ = now;
  return true;
}

}  // namespace pando
