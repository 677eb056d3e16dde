#include "worker/session.h"

#include <algorithm>
#include <utility>

namespace pando {
namespace {

constexpr size_t kWorksMax = 2;
// A lane that was not primary yet will have heard of the view by then.
constexpr Micros kNotPrimaryRetry = std::chrono::milliseconds(20);

}  // namespace

Session::Session(const Options& options, const JobPlan& plan, ComputePort& compute, Outbox& outbox)
    : ready_(options.ready),
      plan_(plan),
      compute_(compute),
      member_(options.identity, outbox),
      silence_(2 * std::chrono::milliseconds(plan.job.lease_ms)),
      shards_(plan.shards.shard_count()),
      // Where the update needs a value of all shards (P14), none is committed before all are in.
      window_(HasPartials(plan.job.optimizer) ? SIZE_MAX : options.push_window_bytes),
      host_(plan, options.sum_buffers) {}

void Session::OnMessage(Micros now, const Envelope& envelope) {
  if (!member_.Admit(now, envelope)) return;
  silence_.OnHeard(envelope.sender);
  const bool brings_data = std::holds_alternative<Params>(envelope.message) ||
                           std::holds_alternative<PushReply>(envelope.message);
  if (brings_data && host_.IsOurRelay(envelope.sender)) {
    host_.NoteParams(now);
  } else if (brings_data) {
    Expect(now, envelope.sender);
  }
  if (const auto* reply = std::get_if<PushReply>(&envelope.message)) {
    return OnPushReply(now, envelope.view, *reply);
  }
  std::visit([&](const auto& message) { OnMessageOf(now, envelope.sender, message); },
             envelope.message);
}

// ---- steps -------------------------------------------------------------------------------------

Version Session::known_everywhere() const {
  return std::ranges::min_element(shards_, {}, &ShardState::known)->known;
}

Session::Work* Session::FindWork(Step step) {
  auto it = std::ranges::find(works_, step, &Work::step);
  return it == works_.end() ? nullptr : &*it;
}

void Session::LearnCommitted(ShardId id, Version version) {
  ShardState& shard = shards_[id.value()];
  if (version <= shard.known) return;
  shard.known = version;
  std::erase_if(shard.pushes, [&](const Unreplied& p) { return VersionMadeBy(p.step) <= version; });
  host_.OnCommitted(id, version);
  shard.ask_at = Micros(0);
}

// Steps that every shard has left behind are done, by us or by others; what compute still does of
// them is of no use, and its parameters are about to be overwritten.
void Session::DropMootWork() {
  const Step lowest = StepReading(known_everywhere());
  while (!works_.empty() && works_.front().step < lowest) {
    if (works_.front().open_calls > 0) {
      compute_.Abandon(works_.front().step);
      works_.clear();
      for (ShardState& shard : shards_) shard.pushes.clear();
      RestoreGifts();
      next_ = lowest;
      return;
    }
    works_.pop_front();
  }
  next_ = std::max(next_, lowest);
}

// Whether any micro-batch of this step or a later one is ours to compute.
bool Session::IsAssignedFrom(Step step) const {
  const NodeId self = member_.self().node;
  return std::ranges::any_of(member_.view().owners, [&](const MicroBatchOwner& owner) {
    return owner.worker == self || (owner.previous == self && owner.first_step > step);
  });
}

void Session::AdvanceWork(Micros now) {
  if (!has_started_ || finished()) return;
  NoteVersion(now);
  const Version known = known_everywhere();
  DropMootWork();
  while (next_.value() < plan_.steps.step_count() && works_.size() < kWorksMax) {
    if (next_ > NextStep(StepReading(known)) || !IsAssignedFrom(next_)) break;
    Issue(next_, AssignedTo(member_.view(), member_.self().node, next_, plan_.steps.Tree(next_)));
    next_ = NextStep(next_);
  }
  VerifyWork(now);
}

void Session::Issue(Step step, std::vector<MicroBatch> micro_batches) {
  Work* work = FindWork(step);
  if (work == nullptr) {
    work = &works_.emplace_back(Work{.step = step});
    PullAtOnce(VersionReadBy(step));
  }
  if (micro_batches.empty())
    return;  // a short batch left ours empty; the step still has to be followed
  work->issued.insert(micro_batches.begin(), micro_batches.end());
  ++work->open_calls;
  compute_.Compute(step, std::move(micro_batches));
}

// Of shards that have this version already nobody sends it unasked, and the last question about
// another one is no reason to wait.
void Session::PullAtOnce(Version version) {
  if (is_layered()) return;
  for (ShardState& shard : shards_) {
    if (shard.known >= version && shard.held[version.value() % 2] != version)
      shard.ask_at = Micros(0);
  }
}

void Session::OnMessageOf(Micros now, const PeerId&, const Params& params) {
  std::map<PeerId, Params> handed_on;
  for (const ParamsItem& item : params.items) {
    if (item.shard.value() >= shards_.size()) continue;
    if (item.payload.size_bytes() != PayloadBytes(item)) continue;
    pulled_bytes_ += item.payload.size_bytes();
    LearnCommitted(item.shard, item.version);
    host_.TakeReplies(item, &handed_on);
    is_layered() ? HandOverWanted(item) : HandOver(item);
    if (evaluation_ && item.version == evaluation_->version) PutOffEvaluationPull(now);
  }
  for (auto& [giver, items] : handed_on) member_.Send(giver, std::move(items));
  waiting_since_ = now;
  AdvanceWork(now);
}

size_t Session::PayloadBytes(const ParamsItem& item) const {
  if (item.form == ParamsForm::kEncoded) return plan_.pulls.PayloadBytes(item.shard);
  return plan_.shards.range(item.shard).size() * sizeof(float);
}

void Session::HandOver(const ParamsItem& item) {
  Version& held = shards_[item.shard.value()].held[item.version.value() % 2];
  const bool is_for_training = item.form == plan_.training_form();
  if (is_for_training && FindWork(StepReading(item.version)) && held != item.version) {
    held = item.version;
    compute_.ParametersArrived(item.shard, item.version, item.payload);
  }
  if (evaluation_ && item.version == evaluation_->version && item.form == ParamsForm::kExact &&
      !evaluation_->arrived[item.shard.value()]) {
    evaluation_->arrived[item.shard.value()] = true;
    compute_.EvaluationParametersArrived(item.shard, item.version, item.payload);
  }
}

void Session::HandOverWanted(const ParamsItem& item) {
  if (item.form == plan_.training_form() &&
      wanted_.Remove({ParameterUse::kTraining, item.version, item.shard}))
    compute_.ParametersArrived(item.shard, item.version, item.payload);
  if (item.form == ParamsForm::kExact &&
      wanted_.Remove({ParameterUse::kEvaluation, item.version, item.shard}))
    compute_.EvaluationParametersArrived(item.shard, item.version, item.payload);
}

// A shard has left this version behind, so its step is complete everywhere (P4): what compute still
// does of it will not end, and is moot.
void Session::OnGone(Version version) {
  if (!is_layered()) return;
  for (uint32_t s = 0; s < shards_.size(); ++s)
    LearnCommitted(ShardId(s), VersionMadeBy(StepReading(version)));
  wanted_.RemoveUpTo(ParameterUse::kTraining, version);
  compute_.ParametersGone(ParameterUse::kTraining, version);
  if (!evaluation_ || evaluation_->version != version) return;
  wanted_.RemoveUpTo(ParameterUse::kEvaluation, version);
  compute_.ParametersGone(ParameterUse::kEvaluation, version);
  evaluation_->request.reset();
}

// What a lane held in an earlier view it may have lost since, or another lane leads the shard now.
void Session::OnPushReply(Micros now, ViewId of_lane, const PushReply& reply) {
  const bool is_held = of_lane >= member_.view().id;
  for (const PushReplyItem& item : reply.items) {
    if (item.shard.value() >= shards_.size()) continue;
    ShardState& shard = shards_[item.shard.value()];
    for (Unreplied& push : shard.pushes) {
      const bool is_it = push.node == item.node && VersionMadeBy(push.step) == item.version;
      if (is_it && item.outcome == PushOutcome::kPending) push.is_held |= is_held;
    }
    if (item.outcome == PushOutcome::kNotPrimary) {
      shard.ask_at = std::min(shard.ask_at, now + kNotPrimaryRetry);
      wanted_.AskSoon(item.shard, now + kNotPrimaryRetry);
    }
    if (item.outcome != PushOutcome::kBehind) continue;
    LearnCommitted(item.shard, item.current);
    const bool is_evaluation = evaluation_ && item.version == evaluation_->version;
    // What was abandoned may be wanted still (WantedShards).
    const bool is_over = is_layered() && item.version < known_everywhere();
    OnGone(item.version);
    if (!is_evaluation && !is_over && questions_.empty()) AskQuestions(now);
  }
  AdvanceWork(now);
}

// ---- from the computing side -------------------------------------------------------------------

void Session::OnComputeEvent(Micros now, ComputeEvent event) {
  if (!finished()) std::visit([&](auto& e) { OnEventOf(now, e); }, event);
}

void Session::OnEventOf(Micros, GradientReady& gradient) {
  ShardState& shard = shards_[gradient.shard.value()];
  if (VersionMadeBy(gradient.step) <= shard.known) return;  // others were faster
  Unreplied push{gradient.step, gradient.node, std::move(gradient.payload)};
  if (host_.Sums(gradient.shard)) return AddPush(gradient.shard, std::move(push));
  shard.pushes.push_back(std::move(push));
}

void Session::OnEventOf(Micros now, StepComputed& done) {
  if (Work* work = FindWork(done.step); work != nullptr && work->open_calls > 0) --work->open_calls;
  waiting_since_ = now;
}

void Session::OnEventOf(Micros now, GradientHashed& hashed) {
  gradient_reports_.Add(now, {hashed.step, hashed.micro_batch, hashed.hash});
}

void Session::OnMessageOf(Micros, const PeerId&, const GradientHashesAck& ack) {
  gradient_reports_.Acknowledge(ack.below);
}

void Session::OnEventOf(Micros, ParametersWanted& wanted) {
  for (ShardId shard : wanted.shards) wanted_.Add({wanted.use, wanted.version, shard});
}

void Session::OnEventOf(Micros now, BadPicturesFound& found) {
  bad_pictures_.Add(now, found.pictures);
}

void Session::OnMessageOf(Micros, const PeerId& from, const PicturesReplacedAck& ack) {
  const bool was_settled = bad_pictures_.is_settled();
  bad_pictures_.Acknowledge(ack.names);
  if (was_settled || !bad_pictures_.is_settled()) return;
  if (evaluation_ && evaluation_->last_result) member_.Send(from, *evaluation_->last_result);
}

void Session::OnEventOf(Micros, ComputeFailed& failed) {
  const StatusCode code = failed.status.code();
  const bool is_of_all = code == StatusCode::kInternal || code == StatusCode::kCorrupt;
  failure_ =
      Failure{failed.status.message(), is_of_all ? FailureKind::kTraining : FailureKind::kMachine};
}

// ---- evaluation (P31) --------------------------------------------------------------------------

void Session::OnMessageOf(Micros now, const PeerId& from, const Evaluate& request) {
  if (request.first_sample > request.last_sample) return;
  if (request.last_sample > plan_.data.test_samples) return;
  if (!evaluation_ || evaluation_->version != request.version) {
    if (is_layered() && evaluation_) {  // the former one will not come whole
      wanted_.RemoveUpTo(ParameterUse::kEvaluation, evaluation_->version);
      compute_.ParametersGone(ParameterUse::kEvaluation, evaluation_->version);
    }
    // With layer residency nothing is pulled before it is wanted.
    const std::vector<bool> arrived(shards_.size(), is_layered());
    evaluation_ = Evaluation{.version = request.version, .arrived = arrived, .ask_at = now};
  }
  const auto& last = evaluation_->last_result;
  if (last && last->slice == request.slice) {
    if (bad_pictures_.is_settled()) member_.Send(from, *last);
  } else if (!evaluation_->request || evaluation_->request->slice != request.slice) {
    evaluation_->request = request;
    compute_.EvaluateSlice(request);
  }
}

void Session::OnEventOf(Micros, EvaluationResult& result) {
  if (!evaluation_ || evaluation_->version != result.version) return;
  evaluation_->request.reset();
  evaluation_->last_result = result;
  if (bad_pictures_.is_settled()) member_.SendToScheduler(result);
}

void Session::OnMessageOf(Micros, const PeerId& from, const Stop& stop) {
  member_.Send(from, Bye{});
  if (stop_) return;
  compute_.Abandon(Step(0));
  stop_ = stop;
}

void Session::OnMessageOf(Micros, const PeerId&, const Refused& refused) {
  if (stop_) return;
  compute_.Abandon(Step(0));
  stop_ = Stop{StopReason::kFailed, refused.reason};
  refusal_ = refused.kind;
}

void Session::Leave(Micros now) {
  is_leaving_ = true;
  control_at_ = now;
}

}  // namespace pando
