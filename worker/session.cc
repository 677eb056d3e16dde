#include "worker/session.h"

#include <algorithm>
#include <utility>

#include "common/mutation.h"

namespace pando {
namespace {

constexpr Micros kControlRetry = std::chrono::milliseconds(200);
constexpr size_t kWorksMax = 2;

}  // namespace

Session::Session(const Options& options, const JobPlan& plan, ComputePort& compute, Outbox& outbox)
    : ready_(options.ready),
      plan_(plan),
      compute_(compute),
      member_(options.identity, outbox),
      shards_(plan.shards.shard_count()) {}

void Session::OnMessage(Micros now, const Envelope& envelope) {
  if (!member_.Admit(now, envelope)) return;
  std::visit([&](const auto& message) { OnMessageOf(now, envelope.sender, message); },
             envelope.message);
}

// ---- views and questions (P17) -----------------------------------------------------------------

void Session::OnMessageOf(Micros now, const PeerId& from, const ViewUpdate& update) {
  if (update.view.shards.size() != shards_.size() || !member_.Enter(from, update.view)) return;
  is_assigned_ = std::ranges::any_of(member_.view().owners, [&](const MicroBatchOwner& owner) {
    return owner.worker == member_.self().node || owner.previous == member_.self().node;
  });
  shard_counts_.clear();
  for (const ShardPlacement& placement : member_.view().shards) ++shard_counts_[placement.primary];
  for (ShardState& shard : shards_) {
    for (Unreplied& push : shard.pushes) push.is_sent = push.is_held = false;
    shard.ask_at = now;
  }
  AskQuestions(now);
}

void Session::AskQuestions(Micros now) {
  questions_.clear();
  answers_.clear();
  for (const ShardPlacement& placement : member_.view().shards)
    questions_.emplace(placement.primary, false);
  question_at_ = now;
}

void Session::OnMessageOf(Micros now, const PeerId& from, const Answer& answer) {
  auto question = questions_.find(from);
  if (answer.view != member_.view().id || question == questions_.end() || question->second) return;
  for (const AnswerItem& item : answer.items) {
    if (item.shard.value() < shards_.size()) answers_.insert_or_assign(item.shard, item);
  }
  question->second = true;
  const bool all = std::ranges::all_of(questions_, [](const auto& q) { return q.second; });
  if (all && answers_.size() == shards_.size()) Decide(now);
  if (all && answers_.size() != shards_.size()) AskQuestions(now + kControlRetry);
}

// All primaries have answered for this view: go on from the lowest incomplete step.
void Session::Decide(Micros) {
  for (const auto& [shard, item] : answers_) LearnCommitted(shard, item.version);
  const Step lowest = StepReading(known_everywhere());
  if (!has_started_) {
    has_started_ = true;
    next_ = lowest;
  } else if (FindWork(lowest) != nullptr) {
    std::vector<MicroBatch> missing = MissingAt(lowest);
    if (!missing.empty()) ComputeMissing(lowest, std::move(missing));
    ExtendLaterWork(lowest);
  }
  questions_.clear();
  AdvanceWork();
}

// Of our micro-batches of this step, those that some shard lacks and that compute does not have.
std::vector<MicroBatch> Session::MissingAt(Step step) const {
  const MicroBatchTree tree = plan_.steps.Tree(step);
  std::vector<MicroBatch> missing;
  for (MicroBatch m : AssignedTo(member_.view(), member_.self().node, step, tree)) {
    const bool is_lacking = std::ranges::any_of(answers_, [&](const auto& answer) {
      const AnswerItem& item = answer.second;
      if (item.version != VersionReadBy(step)) return item.version < VersionReadBy(step);
      return std::ranges::none_of(item.nodes, [&](TreeNode node) {
        if (node.value() < 1 || node.value() >= tree.node_bound()) return false;
        const MicroBatchRange range = tree.Range(node);
        return m.value() >= range.first && m.value() < range.last;
      });
    });
    const auto work = std::ranges::find(works_, step, &Work::step);
    if (is_lacking && (work == works_.end() || !work->issued.contains(m))) missing.push_back(m);
  }
  return missing;
}

// P12: whoever waits in the forward of the next step is interrupted, or nobody would ever compute
// what that forward waits for.
void Session::ComputeMissing(Step step, std::vector<MicroBatch> missing) {
  const bool has_later = works_.back().step > step;
  if (has_later && !Mutated(Mutation::kUninterruptibleWait)) {
    compute_.Abandon(NextStep(step));
    works_.pop_back();
    next_ = NextStep(step);
    for (ShardState& shard : shards_) {
      std::erase_if(shard.pushes, [&](const Unreplied& push) { return push.step > step; });
    }
  }
  Issue(step, std::move(missing));
}

// What this view gives us of steps that were handed to compute under an older one.
void Session::ExtendLaterWork(Step lowest) {
  for (const Work& work : works_) {
    if (work.step <= lowest) continue;
    std::vector<MicroBatch> added =
        AssignedTo(member_.view(), member_.self().node, work.step, plan_.steps.Tree(work.step));
    std::erase_if(added, [&](MicroBatch m) { return work.issued.contains(m); });
    if (!added.empty()) Issue(work.step, std::move(added));
  }
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
  shard.ask_at = shard.ask_interval = Micros(0);
}

// Steps that every shard has left behind are done, by us or by others; what compute still does of
// them is of no use, and its parameters are about to be overwritten.
void Session::DropMootWork() {
  const Step lowest = StepReading(known_everywhere());
  while (!works_.empty() && works_.front().step < lowest) {
    if (works_.front().open_calls > 0) {
      compute_.Abandon(works_.front().step);
      works_.clear();
      next_ = lowest;
      return;
    }
    works_.pop_front();
  }
  next_ = std::max(next_, lowest);
}

void Session::AdvanceWork() {
  if (!has_started_ || finished()) return;
  DropMootWork();
  const Version known = known_everywhere();
  while (is_assigned_ && next_.value() < plan_.steps.step_count() && works_.size() < kWorksMax) {
    if (next_ > NextStep(StepReading(known))) return;
    Issue(next_, AssignedTo(member_.view(), member_.self().node, next_, plan_.steps.Tree(next_)));
    next_ = NextStep(next_);
  }
}

void Session::Issue(Step step, std::vector<MicroBatch> micro_batches) {
  Work* work = FindWork(step);
  if (work == nullptr) work = &works_.emplace_back(Work{step, {}, 0});
  if (micro_batches.empty())
    return;  // a short batch left ours empty; the step still has to be followed
  work->issued.insert(micro_batches.begin(), micro_batches.end());
  ++work->open_calls;
  compute_.Compute(step, std::move(micro_batches));
}

void Session::OnMessageOf(Micros now, const PeerId&, const Params& params) {
  for (const ParamsItem& item : params.items) {
    if (item.shard.value() >= shards_.size()) continue;
    if (item.payload.floats().size() != plan_.shards.range(item.shard).size()) continue;
    LearnCommitted(item.shard, item.version);
    ShardState& shard = shards_[item.shard.value()];
    Version& held = shard.held[item.version.value() % 2];
    if (FindWork(StepReading(item.version)) != nullptr && held != item.version) {
      held = item.version;
      compute_.ParametersArrived(item.shard, item.version, item.payload);
    }
    if (evaluation_ && item.version == evaluation_->version &&
        !evaluation_->arrived[item.shard.value()]) {
      evaluation_->arrived[item.shard.value()] = true;
      compute_.EvaluationParametersArrived(item.shard, item.version, item.payload);
    }
  }
  waiting_since_ = now;
  AdvanceWork();
}

void Session::OnMessageOf(Micros now, const PeerId&, const PushReply& reply) {
  for (const PushReplyItem& item : reply.items) {
    if (item.shard.value() >= shards_.size()) continue;
    ShardState& shard = shards_[item.shard.value()];
    for (Unreplied& push : shard.pushes) {
      const bool is_it = push.node == item.node && VersionMadeBy(push.step) == item.version;
      if (is_it && item.outcome == PushOutcome::kPending) push.is_held = true;
    }
    if (item.outcome != PushOutcome::kBehind) continue;
    LearnCommitted(item.shard, item.current);
    const bool is_evaluation = evaluation_ && item.version == evaluation_->version;
    if (!is_evaluation && questions_.empty()) AskQuestions(now);
  }
  AdvanceWork();
}

// ---- from the computing side -------------------------------------------------------------------

void Session::OnComputeEvent(Micros now, ComputeEvent event) {
  if (!finished()) std::visit([&](auto& e) { OnEventOf(now, e); }, event);
}

void Session::OnEventOf(Micros, GradientReady& gradient) {
  ShardState& shard = shards_[gradient.shard.value()];
  if (VersionMadeBy(gradient.step) <= shard.known) return;  // others were faster
  shard.pushes.push_back({gradient.step, gradient.node, std::move(gradient.payload)});
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

void Session::OnEventOf(Micros, ComputeFailed& failed) { failure_ = failed.status.message(); }

// ---- evaluation (P31) --------------------------------------------------------------------------

void Session::OnMessageOf(Micros now, const PeerId& from, const Evaluate& request) {
  if (request.first_sample > request.last_sample) return;
  if (request.last_sample > plan_.data.test_samples) return;
  if (!evaluation_ || evaluation_->version != request.version) {
    evaluation_ = Evaluation{request.version, std::vector<bool>(shards_.size()), {}, {}, now};
  }
  const auto& last = evaluation_->last_result;
  if (last && last->slice == request.slice) {
    member_.Send(from, *last);
  } else if (!evaluation_->request || evaluation_->request->slice != request.slice) {
    evaluation_->request = request;
    compute_.EvaluateSlice(request);
  }
}

void Session::OnEventOf(Micros, EvaluationResult& result) {
  if (!evaluation_ || evaluation_->version != result.version) return;
  evaluation_->request.reset();
  evaluation_->last_result = result;
  member_.SendToScheduler(result);
}

void Session::OnMessageOf(Micros, const PeerId& from, const Stop& stop) {
  member_.Send(from, Bye{});
  if (stop_) return;
  compute_.Abandon(Step(0));
  stop_ = stop;
}

void Session::OnMessageOf(Micros, const PeerId&, const Refused& refused) {
  if (!stop_) stop_ = Stop{StopReason::kFailed, refused.reason};
}

}  // namespace pando
