#include "worker/session.h"

#include <algorithm>

#include "proto/dispatch.h"
#include "proto/ownership.h"

namespace pando {

Session::Session(const Options& options, const JobPlan& plan, ComputePort& compute, Outbox& outbox)
    : WorkerCore(options.identity, options.ready, plan, compute, outbox),
      lanes_(2 * std::chrono::milliseconds(plan.job.lease_ms), member_),
      versions_(plan.shards.shard_count(), *this),
      gradients_(plan.steps, plan.shards.shard_count()),
      shared_(plan, member_, versions_, gradients_, compute),
      steps_(shared_, *this),
      parameters_(shared_, steps_),
      requests_(shared_, parameters_, lanes_),
      questions_(member_, lanes_, requests_),
      helping_(shared_, lifecycle_, steps_, questions_),
      giver_(shared_, requests_, helping_.clock()),
      relay_(shared_, options.sum_buffers),
      sender_(shared_,
              {.steps = steps_,
               .clock = helping_.clock(),
               .giver = giver_,
               .relay = relay_,
               .requests = requests_,
               .lanes = lanes_},
              options.push_window_bytes),
      verification_(shared_, steps_, parameters_),
      evaluation_({.test_samples = plan.data.test_samples,
                   .shard_count = plan.shards.shard_count(),
                   .retry_max = LaneRequests::kRetryMax,
                   .put_off = LaneRequests::kRetryFirst,
                   .is_layered = parameters_.is_layered()},
                  compute, member_, *this) {}

// ---- what comes in -----------------------------------------------------------------------------

void Session::OnMessage(Micros now, const Envelope& envelope) {
  if (!member_.Admit(now, envelope)) return;
  const PeerId& from = envelope.sender;
  lanes_.OnHeard(from);
  const auto is_relayed = [&] {
    return giver_.IsOurRelay(from) && AreAllShards(envelope.message, [&](ShardId shard) {
             return giver_.IsRelayFor(shard, from);
           });
  };
  if (!IsAboutOwnShards(member_.view(), envelope) && !is_relayed()) return;
  Dispatch<Core::kWorker>(
      envelope.message, [&](const ViewUpdate&) { OnView(now, envelope); },
      [&](const ViewDelta&) { OnView(now, envelope); },
      [&](const ViewWanted&) { member_.OnViewWanted(now, envelope); },
      [&](const ViewHint&) { member_.OnHint(now, envelope); },
      [&](const Push& push) {
        if (relay_.OnPush(from, push)) Advance(now);
      },
      [&](const Question& question) { relay_.OnQuestion(from, question); },
      [&](const Params& params) {
        OnData(now, from);
        OnParams(now, params);
      },
      [&](const PushReply& reply) {
        OnData(now, from);
        OnPushReply(now, envelope.view, reply);
      },
      [&](const Answer& answer) { OnAnswer(now, from, answer); },
      [&](const Evaluate& request) { evaluation_.OnEvaluate(now, request); },
      [&](const GradientHashesAck& ack) { verification_.OnGradientHashesAck(ack); },
      [&](const Stop& stop) { lifecycle_.OnStop(from, stop); },
      [&](const Refused& refused) { lifecycle_.OnRefused(refused); });
}

void Session::OnComputeEvent(Micros now, ComputeEvent event) {
  if (finished()) return;
  std::visit(Overloaded{
                 [&](GradientReady& ready) { OnGradientReady(ready); },
                 [&](const StepComputed& done) { steps_.OnStepComputed(now, done); },
                 [&](const GradientHashed& hashed) { verification_.OnGradientHashed(now, hashed); },
                 [&](const EvaluationResult& result) { evaluation_.OnEvaluationResult(result); },
                 [&](const ParametersWanted& wanted) { parameters_.OnParametersWanted(wanted); },
                 [&](const ComputeFailed& failed) { lifecycle_.OnComputeFailed(failed); },
             },
             event);
}

// ---- views -------------------------------------------------------------------------------------

void Session::OnView(Micros now, const Envelope& envelope) {
  const uint32_t generation = member_.view().generation;
  if (!member_.OnView(now, envelope)) return;
  const View& view = member_.view();
  if (view.generation != generation) Forget();
  lifecycle_.SetMember(member_.is_in_view());
  const SumGroup group = SumGroupFor(view, member_.self(), plan_);
  lanes_.EnterView();
  gradients_.EnterView();
  parameters_.wanted().AskAgain();
  requests_.EnterView(now);
  giver_.EnterView(group);
  relay_.EnterView(group);
  sender_.EnterView();
  evaluation_.EnterView(now);
  helping_.EnterView();
  verification_.EnterView();
  questions_.EnterView(now);
}

// P21: nothing from before the rollback may reach the new generation.
void Session::Forget() {
  compute_.Forget();
  versions_.Forget();
  gradients_.Clear();
  steps_.Forget();
  parameters_.Forget();
  requests_.Forget();
  relay_.Forget();
  evaluation_.Forget();
  verification_.Forget();
  lifecycle_.ForgetFailure();
}

void Session::OnAnswer(Micros now, const PeerId& from, const Answer& answer) {
  if (giver_.IsOurRelay(from)) {
    if (giver_.OnAnswer(now, from, answer) && !questions_.is_open()) Advance(now);
    return;
  }
  if (answer.view != member_.view().id) return;
  if (requests_.OnAnswer(from, answer) && !questions_.is_open()) Advance(now);
  if (!questions_.OnAnswer(now, from, answer)) return;
  for (const auto& [shard, item] : questions_.answers().items())
    versions_.Learn(shard, item.version);
  helping_.OnVersions(now);
  steps_.OnAnswered(questions_.answers());
  helping_.OnAnswered(now);
  Advance(now);
}

// ---- steps -------------------------------------------------------------------------------------

// Continues after news of commits.
void Session::Advance(Micros now) {
  if (!steps_.has_started() || finished()) return;
  helping_.OnVersions(now);
  steps_.Advance();
  verification_.Advance(now);
}

void Session::OnGradientReady(GradientReady& ready) {
  if (VersionMadeBy(ready.step) <= versions_.known(ready.shard)) return;  // others were faster
  UnrepliedGradient gradient{
      .step = ready.step, .node = ready.node, .payload = std::move(ready.payload)};
  if (relay_.Sums(ready.shard)) return relay_.Add(ready.shard, std::move(gradient));
  gradients_.Add(ready.shard, std::move(gradient));
}

void Session::OnParams(Micros now, const Params& params) {
  SumRelay::Replies replies;
  for (size_t i = 0; i < params.items.size(); ++i) {
    const ParamsItem& item = params.items[i];
    if (i > 0 && item.version > params.items[i - 1].version) Advance(now);
    if (!parameters_.IsSound(item)) continue;
    versions_.Learn(item.shard, item.version);
    relay_.OnParams(item, &replies);
    parameters_.OnParams(item);
    requests_.OnParams(item.shard);
    evaluation_.OnParams(now, item);
  }
  for (auto& [giver, reply] : replies) member_.Send(giver, std::move(reply));
  steps_.OnParams(now);
  Advance(now);
}

// A lane may have lost what it held in an earlier view, or another lane may lead the shard now.
void Session::OnPushReply(Micros now, const ViewId& lanes_view, const PushReply& reply) {
  const bool is_of_this_view = lanes_view >= member_.view().id;
  for (const PushReplyItem& item : reply.items) {
    if (!versions_.HasShard(item.shard)) continue;
    switch (item.outcome) {
      case PushOutcome::kPending:
        if (is_of_this_view) gradients_.MarkHeld(item.shard, item.node, item.version);
        break;
      case PushOutcome::kNotPrimary:
        requests_.OnNotPrimary(now, item.shard);
        break;
      case PushOutcome::kBehind:
        OnBehind(now, item);
        break;
    }
  }
  Advance(now);
}

// The shard has a newer version than it was asked for. With layer residency all steps that read the
// version are then complete everywhere (P4). Compute cannot finish them, and their results are not
// needed.
void Session::OnBehind(Micros now, const PushReplyItem& item) {
  versions_.Learn(item.shard, item.current);
  const bool is_evaluation = evaluation_.IsAbout(item.version);
  bool is_over = false;
  if (parameters_.is_layered()) {
    // Shards that abandoned work asked for are still wanted (WantedShards).
    const Version made = VersionMadeBy(plan_.steps.LastStepReading(item.version));
    is_over = made <= versions_.everywhere();
    versions_.LearnAll(made);
    parameters_.OnGone(ParameterUse::kTraining, item.version);
    evaluation_.OnGone(item.version);
  }
  if (!is_evaluation && !is_over && !questions_.is_open()) questions_.Ask(now);
}

// ---- the clock ---------------------------------------------------------------------------------

void Session::Tick(Micros now) {
  if (finished()) return;
  lifecycle_.Tick(now);
  lanes_.Tick(now);
  verification_.Tick(now);
  if (!member_.has_view()) return;
  helping_.Tick(now);
  questions_.Tick(now);
  giver_.Tick(now);
  // First what is due to be asked for: a relay pushes gradients of others even before it has the
  // version that its own are made with, and a push counts as a request for what it makes.
  requests_.Tick(now);
  sender_.Tick(now);
  evaluation_.Tick(now);
}

Micros Session::NextDeadline() const {
  if (finished()) return kNever;
  return std::min({lifecycle_.NextDeadline(), lanes_.NextDeadline(), verification_.NextDeadline(),
                   helping_.NextDeadline(), questions_.NextDeadline(), giver_.NextDeadline(),
                   sender_.NextDeadline(), requests_.NextDeadline(), evaluation_.NextDeadline()});
}

Heartbeat Session::CurrentActivity(Micros now) const {
  Heartbeat heartbeat;
  const auto& works = steps_.works();
  if (!works.empty()) heartbeat.step = works.front().step;
  const bool is_computing =
      std::ranges::any_of(works, [](const Steps::Work& work) { return work.open_calls > 0; });
  const bool is_waiting = !works.empty() && !steps_.IsComputing();
  if (finished() || lifecycle_.is_leaving()) {
    heartbeat.activity = Activity::kLeaving;
  } else if (!lifecycle_.is_member()) {
    heartbeat.activity = Activity::kStarting;
  } else if (evaluation_.is_running()) {
    heartbeat.activity = Activity::kEvaluating;
  } else if (is_waiting) {
    heartbeat.activity = Activity::kWaitingForParameters;
    const ShardId shard = versions_.lowest_shard();
    const PeerId* relay = gradients_.HasGiven(shard) ? giver_.GivesTo(shard) : nullptr;
    heartbeat.waiting_for = relay != nullptr ? *relay : lanes_.primary(shard);
    heartbeat.waiting_ms = static_cast<uint64_t>((now - steps_.waiting_since()).count()) / 1000;
  } else {
    heartbeat.activity = is_computing ? Activity::kComputing : Activity::kIdle;
  }
  return heartbeat;
}

}  // namespace pando
