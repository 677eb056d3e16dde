// The part of Session that follows views: what is asked, what is missing, who helps whom (P17,
// P41).
#include <algorithm>
#include <utility>

#include "common/mutation.h"
#include "worker/session.h"

namespace pando {
namespace {

constexpr Micros kQuestionRetryFirst = std::chrono::milliseconds(10);
constexpr Micros kQuestionRetryMax = std::chrono::milliseconds(200);
// A lane that has not answered for so long may not have heard of our view.
constexpr Micros kHintAfter = std::chrono::milliseconds(100);
// Whoever is further behind was no part of those steps.
constexpr uint64_t kSkippedStepsMax = 1024;

}  // namespace

bool Session::WillEnter(const Envelope& envelope) const {
  return member_.WillEnter(envelope) && IsOfOurShards(std::get<ViewUpdate>(envelope.message).view);
}

void Session::OnMessageOf(Micros now, const PeerId& from, const ViewUpdate& update) {
  const uint32_t generation = member_.view().generation;
  if (!IsOfOurShards(update.view) || !member_.Enter(from, update.view)) return;
  const View& view = member_.view();
  if (view.generation != generation) Forget();
  is_member_ = std::ranges::any_of(view.nodes, [&](const NodeInfo& node) {
    return node.incarnation == member_.self().incarnation;
  });
  window_.Clear();
  shard_counts_.clear();
  for (size_t i = 0; i < view.shards.size(); ++i) {
    const PeerId& lane = view.shards[i].primary;
    ++shard_counts_[lane];
    window_.Add(lane, plan_.pushes.PayloadBytes(ShardId(static_cast<uint32_t>(i))));
  }
  host_.Enter(view, member_.self());
  if (host_.shard_count() > 0) shard_counts_[host_.group().relay] = host_.shard_count();
  for (ShardState& shard : shards_) {
    for (Unreplied& push : shard.pushes) {
      if (push.is_given && Mutated(Mutation::kGiveOnce)) continue;
      push.is_sent = push.is_held = push.is_given = false;
    }
    shard.ask_at = now;
    shard.asked = Version(0);
  }
  debts_.clear();  // who was silent is not who is asked now
  if (evaluation_) {
    evaluation_->ask_at = now;
    evaluation_->interval = Micros(0);
  }
  wanted_.AskAnew();
  silence_.Clear();
  step_clock_.Disturb();
  is_helping_ = false;
  help_at_ = kNever;
  has_new_assignment_ = true;
  question_interval_ = kQuestionRetryFirst;
  AskQuestions(now);
  if (has_started_ && Mutated(Mutation::kNoQuestion)) questions_.clear();
}

// P21: a rolled-back run must not meet anything of what it was before.
void Session::Forget() {
  compute_.Forget();
  std::ranges::fill(shards_, ShardState{});
  host_.Forget();
  works_.clear();
  next_ = Step(0);
  has_started_ = false;
  evaluation_.reset();
  wanted_.Clear();
  failure_.reset();  // of work that does not count any more
  gradient_reports_.Clear();
  verify_next_.reset();
}

// ---- questions (P17) ---------------------------------------------------------------------------

void Session::AskQuestions(Micros at) {
  questions_.clear();
  answers_.clear();
  for (const ShardPlacement& placement : member_.view().shards)
    questions_.emplace(placement.primary, false);
  question_at_ = at;
}

void Session::RepeatQuestions(Micros now) {
  if (questions_.empty() || now < question_at_) return;
  for (const auto& [lane, is_answered] : questions_) {
    if (is_answered || lane.node == kUnknownNode) continue;
    if (question_interval_ > kHintAfter) member_.HintView(now, lane);
    AskQuestion(now, lane);
  }
  question_at_ = now + question_interval_;
  question_interval_ = std::min(2 * question_interval_, kQuestionRetryMax);
}

void Session::OnMessageOf(Micros now, const PeerId& from, const Answer& answer) {
  if (host_.IsOurRelay(from)) return OnRelayAnswer(now, answer);
  const bool is_of_this_view = answer.view == member_.view().id || Mutated(Mutation::kNoViewStamp);
  if (is_of_this_view) FindLost(now, from, answer);
  auto question = questions_.find(from);
  if (!is_of_this_view || question == questions_.end() || question->second) return;
  for (const AnswerItem& item : answer.items) {
    if (item.shard.value() < shards_.size()) answers_.insert_or_assign(item.shard, item);
  }
  question->second = true;
  if (!std::ranges::all_of(questions_, [](const auto& q) { return q.second; })) return;
  if (answers_.size() == shards_.size()) return Decide(now);
  AskQuestions(now + question_interval_);  // a shard is still being restored
}

// All primaries have answered for this view: go on from the lowest incomplete step.
void Session::Decide(Micros now) {
  questions_.clear();
  question_interval_ = kQuestionRetryFirst;
  for (const auto& [shard, item] : answers_) LearnCommitted(shard, item.version);
  const Step lowest = StepReading(known_everywhere());
  NoteVersion(now);
  if (!has_started_) {
    has_started_ = true;
    next_ = lowest;
  } else if (FindWork(lowest) != nullptr) {
    std::vector<MicroBatch> missing = MissingAt(lowest);
    if (!missing.empty()) ComputeMissing(lowest, std::move(missing));
    ExtendLaterWork(lowest);
  }
  if (is_helping_) Help(now, lowest);
  AdvanceWork(now);
}

// Whether a shard has this micro-batch's part of the step that reads the version it answered with.
bool Session::IsHeld(const AnswerItem& item, MicroBatch m, const MicroBatchTree& tree) const {
  return std::ranges::any_of(item.nodes, [&](TreeNode node) {
    if (node.value() < 1 || node.value() >= tree.node_bound()) return false;
    const MicroBatchRange range = tree.Range(node);
    return m.value() >= range.first && m.value() < range.last;
  });
}

// The same of a node: it or one above it.
bool Session::HoldsNode(const AnswerItem& item, TreeNode node, Step step) const {
  const MicroBatchTree tree = plan_.steps.Tree(step);
  return StepReading(item.version) == step && std::ranges::any_of(item.nodes, [&](TreeNode held) {
           if (held.value() < 1 || held.value() >= tree.node_bound()) return false;
           return held == node || tree.IsAncestor(held, node);
         });
}

bool Session::IsIssued(Step step, MicroBatch m) const {
  const auto work = std::ranges::find(works_, step, &Work::step);
  return work != works_.end() && work->issued.contains(m);
}

// Of our micro-batches of this step, those that some shard lacks and that compute does not have.
std::vector<MicroBatch> Session::MissingAt(Step step) const {
  const MicroBatchTree tree = plan_.steps.Tree(step);
  const Version version = VersionReadBy(step);
  std::vector<MicroBatch> missing = AssignedTo(member_.view(), member_.self().node, step, tree);
  std::erase_if(missing, [&](MicroBatch m) {
    const bool is_lacking = std::ranges::any_of(answers_, [&](const auto& answer) {
      const AnswerItem& item = answer.second;
      return item.version < version || (item.version == version && !IsHeld(item, m, tree));
    });
    return !is_lacking || IsIssued(step, m);
  });
  return missing;
}

// P12: whoever waits in the forward of the next step is interrupted, or nobody would ever compute
// what that forward waits for.
void Session::ComputeMissing(Step step, std::vector<MicroBatch> missing) {
  const bool has_later = !works_.empty() && works_.back().step > step;
  if (has_later && !Mutated(Mutation::kUninterruptibleWait)) {
    compute_.Abandon(NextStep(step));
    works_.pop_back();
    next_ = NextStep(step);
    for (ShardState& shard : shards_) {
      std::erase_if(shard.pushes, [&](const Unreplied& push) { return push.step > step; });
    }
    RestoreGifts();
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

// ---- stragglers --------------------------------------------------------------------------------

// A member, with no step in the works, while there are some to come.
bool Session::IsIdle() const {
  if (!has_started_ || !is_member_ || !works_.empty()) return false;
  return known_everywhere().value() < plan_.steps.step_count();
}

// Our part of the lowest incomplete step is done, and nothing keeps it from being complete but
// others.
bool Session::IsWaiting() const {
  if (IsIdle()) return true;
  if (!has_started_ || works_.empty() || works_.front().open_calls > 0) return false;
  return works_.front().step == StepReading(known_everywhere());
}

void Session::NoteVersion(Micros now) {
  if (!step_clock_.OnVersion(now, known_everywhere())) return;
  is_helping_ = false;
  help_at_ = kNever;
}

void Session::ConsiderHelping(Micros now) {
  // Help would heal what these leave out, only later.
  if (Mutated(Mutation::kNoQuestion) || Mutated(Mutation::kNoViewStamp)) return;
  if (Mutated(Mutation::kNoRetransmission) || Mutated(Mutation::kGiveOnce)) return;
  if (plan_.pushes.has_feedback()) return;  // another's gradient has lost other bits (P34)
  std::optional<Micros> patience = step_clock_.patience();
  if (!patience && IsIdle()) patience = StepClock::kPatienceMin;  // to measure steps, not to help
  if (!IsWaiting() || !patience) {
    if (!is_helping_) help_at_ = kNever;
    return;
  }
  if (help_at_ == kNever) help_at_ = now + *patience;
  if (now < help_at_ || !questions_.empty()) return;
  is_helping_ = true;
  AskQuestions(now);
}

// One micro-batch for each computing thread at a time, asked for anew each time: what the straggler
// sends meanwhile, or another helper, is not computed here.
void Session::Help(Micros now, Step step) {
  if (!IsWaiting()) return;  // something of our own was missing
  std::vector<MicroBatch> missing = MissingOfOthers(step);
  if (missing.empty() || !step_clock_.patience()) {
    is_helping_ = false;
    help_at_ = now + step_clock_.patience().value_or(StepClock::kPatienceMin);
    return;
  }
  step_clock_.Disturb();
  std::ranges::rotate(missing, missing.begin() + static_cast<long>(HelpOffset(missing.size())));
  missing.resize(std::min<size_t>(missing.size(), plan_.job.threads));
  std::ranges::sort(missing);
  ComputeMissing(step, std::move(missing));
  next_ = std::max(next_, NextStep(step));
}

std::vector<MicroBatch> Session::MissingOfOthers(Step step) const {
  const MicroBatchTree tree = plan_.steps.Tree(step);
  std::vector<MicroBatch> missing = tree.PresentLeaves();
  std::erase_if(missing, [&](MicroBatch m) {
    const bool is_lacking = std::ranges::any_of(answers_, [&](const auto& answer) {
      return answer.second.version == VersionReadBy(step) && !IsHeld(answer.second, m, tree);
    });
    return !is_lacking || IsIssued(step, m);
  });
  return missing;
}

// Where this worker begins among `count` missing micro-batches: apart from other helpers.
size_t Session::HelpOffset(size_t count) const {
  size_t worker_count = 0;
  size_t lower_rank_count = 0;
  uint32_t our_rank = 0;
  const auto& nodes = member_.view().nodes;
  for (const NodeInfo& node : nodes) {
    if (node.node == member_.self().node) our_rank = node.rank;
  }
  for (const NodeInfo& node : nodes) {
    if (node.role != Role::kWorker) continue;
    ++worker_count;
    if (node.rank < our_rank) ++lower_rank_count;
  }
  return worker_count == 0 ? 0 : lower_rank_count * count / worker_count;
}

// ---- verification (P41) ------------------------------------------------------------------------

bool Session::VerifiesHere(Step step, MicroBatch m) const {
  return plan_.IsVerified(step, m) && m.value() < member_.view().owners.size() &&
         VerifierOf(member_.view(), step, m) == member_.self().node;
}

// Whether compute has all of it. What it has not might never come: others may go on without us.
bool Session::HoldsWhole(Version version) const {
  return std::ranges::all_of(shards_,
                             [&](const ShardState& shard) { return HasOf(shard, version); });
}

// Hands out what the view gives us to compute again of the lowest incomplete step: once when its
// parameters are here, and once more in each new view. Of steps that others took past us, says so.
void Session::VerifyWork(Micros now) {
  const Step lowest = StepReading(known_everywhere());
  if (plan_.job.verify_every == 0) return;
  if (verify_next_ == NextStep(lowest) && !has_new_assignment_) return;
  Step step = verify_next_.value_or(lowest);
  if (step.value() + kSkippedStepsMax < lowest.value()) step = lowest;
  for (; step < lowest; step = NextStep(step)) {
    for (MicroBatch m : plan_.steps.Tree(step).PresentLeaves()) {
      if (VerifiesHere(step, m)) gradient_reports_.Add(now, {step, m, 0});
    }
  }
  verify_next_ = lowest;
  Work* work = FindWork(lowest);
  if (work == nullptr || !HoldsWhole(VersionReadBy(lowest))) return;
  verify_next_ = NextStep(lowest);
  has_new_assignment_ = false;
  for (MicroBatch m : plan_.steps.Tree(lowest).PresentLeaves()) {
    if (!VerifiesHere(lowest, m) || work->issued.contains(m)) continue;
    if (work->verified.insert(m).second) compute_.Verify(lowest, m);
  }
}

}  // namespace pando
