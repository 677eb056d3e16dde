// The sending half of Session: what goes out, when, and how often it is repeated (P6, P10).
#include <algorithm>
#include <set>
#include <utility>

#include "common/mutation.h"
#include "proto/message_parts.h"
#include "worker/session.h"

namespace pando {
namespace {

constexpr Micros kControlRetry = std::chrono::milliseconds(200);
constexpr Micros kDataRetryFirst = std::chrono::milliseconds(500);
constexpr Micros kDataRetryMax = std::chrono::seconds(4);
// A lane whose link carries less than 4 MB/s of ours may be taken for one that is cut off.
constexpr size_t kSlowestBytesPerMicro = 4;
constexpr Version kNoVersion(UINT64_MAX);

}  // namespace

void Session::Tick(Micros now) {
  if (finished()) return;
  RepeatControl(now);
  if (!member_.has_view()) return;
  ConsiderHelping(now);
  RepeatQuestions(now);
  AskRelay(now);
  FlushPushes(now);
  QuestionSilentLanes(now);
  AskWhatIsDue(now);
  PullForEvaluation(now);
}

// What the scheduler is told until it shows that it knows.
void Session::RepeatControl(Micros now) {
  if (now >= control_at_ && (!is_member_ || failure_ || is_leaving_)) {
    if (!is_member_) member_.SendToScheduler(ready_);
    if (failure_) member_.SendToScheduler(*failure_);
    if (is_leaving_) member_.SendToScheduler(pando::Leave{});
    control_at_ = now + kControlRetry;
  }
  while (auto silent = silence_.TakeDue(now)) member_.SendToScheduler(*silent);
  if (auto hashes = gradient_reports_.TakeDue(now)) member_.SendToScheduler(*std::move(hashes));
  if (auto found = bad_pictures_.TakeDue(now)) member_.SendToScheduler(*std::move(found));
}

// A shard may have no primary for a while: a new view will name one.
void Session::SendToLane(const PeerId& lane, Message message) {
  if (lane.node != kUnknownNode) member_.Send(lane, std::move(message));
}

// What a lane answers at once, if only with Pending; a fresh push is answered when there is a
// version.
void Session::AskLane(Micros now, const PeerId& lane, Message message) {
  if (lane.node != kUnknownNode) silence_.Expect(now, lane);
  SendToLane(lane, std::move(message));
}

// P4: nothing of step t + 1 is sent before version t + 1 of every shard is known to be committed.
// Nor is anything that may be made of a picture in another's place before the scheduler knows it.
bool Session::BarrierIsOpen(Step step) const {
  if (!bad_pictures_.is_settled()) return false;
  return VersionReadBy(step) <= known_everywhere() || Mutated(Mutation::kNoBarrier);
}

// Whether nothing more is to come of this step from compute.
bool Session::IsComputed(Step step) {
  const Work* work = FindWork(step);
  return work == nullptr || work->open_calls == 0;
}

bool Session::HasUnsentPushes() const {
  return std::ranges::any_of(shards_, [](const ShardState& shard) {
    return !std::ranges::all_of(shard.pushes, &Unreplied::is_sent);
  });
}

// How many sums of each shard compute has been asked for.
size_t Session::PushesOfEachShard(Step step) {
  const Work* work = FindWork(step);
  if (work == nullptr) return 0;
  return plan_.NodesToPush(step, {work->issued.begin(), work->issued.end()}).size();
}

// The part of a step for which a lane may wait for another worker while it carries nothing of ours;
// over before anybody helps that one.
Micros Session::WindowPatience() const {
  const Micros usual = step_clock_.usual().value_or(Micros::max());
  return std::min(usual / 4, PushWindow::kPatienceMax);
}

// The part of a step for which a sum waits for those of the host's other workers (P6a); nobody
// helps before three steps are over.
Micros Session::HostPatience() const {
  return std::min(step_clock_.usual().value_or(Micros::max()), PushWindow::kPatienceMax);
}

// Adds the shard's unsent pushes: to the host's relay, or, if its lane's window admits them and
// they wait for nobody else of the host, to the lane.
bool Session::GatherPushesOf(Micros now, ShardId id, Parcels& parcels) {
  ShardState& shard = shards_[id.value()];
  const bool is_given = host_.Gives(id);
  const PeerId& receiver = is_given ? host_.group().relay : PrimaryOf(id);
  const auto may_go = [&](const Unreplied& push) {
    if (push.is_sent || !BarrierIsOpen(push.step)) return false;
    if (is_given) return true;
    return host_.MayLeave(now, id, push.step, push.node, HostPatience()) &&
           window_.Admits(receiver);
  };
  bool has_gathered = false;
  for (Unreplied& unreplied : shard.pushes) {
    if (!may_go(unreplied)) continue;
    Parcel& parcel = parcels[{receiver, unreplied.step}];
    parcel.items.push_back({id, unreplied.step, unreplied.node, unreplied.payload});
    parcel.bytes += unreplied.payload.size_bytes();
    parcel.shards.insert(id);
    parcel.pushes.emplace_back(&shard, &unreplied);
    has_gathered = true;
  }
  return has_gathered;
}

// The unsent pushes that may go, by receiver: from the back of the model, which backward finishes
// first, and once it is over from the front, which the next forward reads first.
Session::Parcels Session::GatherPushes(Micros now) {
  Parcels parcels;
  const Step step_to_make = StepReading(known_everywhere());
  const Version lacking = VersionMadeBy(step_to_make);
  const size_t pushes_of_ours = PushesOfEachShard(step_to_make);
  std::vector<bool> are_gathered(shards_.size());
  const auto look_at = [&](size_t i) {
    const ShardId id(static_cast<uint32_t>(i));
    const ShardState& shard = shards_[i];
    if (!are_gathered[i]) are_gathered[i] = GatherPushesOf(now, id, parcels);
    if (shard.known >= lacking) return;
    const bool is_all_here =
        host_.Sums(id) ? IsAllHere(shard, step_to_make) : shard.pushes.size() >= pushes_of_ours;
    window_.Pass(PrimaryOf(id), id, plan_.pushes.PayloadBytes(id), is_all_here);
  };
  window_.Begin(now, lacking, WindowPatience());
  if (IsComputed(step_to_make)) {
    window_.FromFirst();
    for (size_t i = 0; i < shards_.size(); ++i) look_at(i);
  }
  window_.FromLast();
  for (size_t i = shards_.size(); i-- > 0;) look_at(i);
  window_.End();
  return parcels;
}

void Session::FlushPushes(Micros now) {
  host_.BeginLook();
  if (!HasUnsentPushes()) return window_.Rest();
  for (auto& [key, parcel] : GatherPushes(now)) {
    const auto& [receiver, step] = key;
    const bool is_whole = parcel.shards.size() == shard_counts_.at(receiver);
    if (!is_whole && parcel.bytes < kFlushBytes && !IsComputed(step)) continue;
    const bool is_given = host_.IsOurRelay(receiver);
    for (auto& [shard, unreplied] : parcel.pushes) {
      unreplied->is_sent = true;
      unreplied->is_given = is_given;
      NoteAsked(now, *shard, VersionMadeBy(step));
    }
    NoteSent(now, receiver, step, parcel.bytes);
    for (auto& items : InMessages(std::move(parcel.items)))
      SendToLane(receiver, Push{std::move(items)});
  }
}

void Session::NoteSent(Micros now, const PeerId& receiver, Step step, size_t bytes) {
  if (host_.IsOurRelay(receiver)) {
    host_.NoteGiven(now);
    given_bytes_ += bytes;
    return;
  }
  Expect(now, receiver);
  pushed_bytes_.all += bytes;
  if (!IsComputed(step)) pushed_bytes_.early += bytes;
}

// Whether compute has this, or, with layer residency, can have it when it wants it.
bool Session::HasOf(const ShardState& shard, Version version) const {
  return is_layered() ? version <= shard.known : shard.held[version.value() % 2] == version;
}

// The version that compute needs of this shard and that nothing of ours asks for by itself. A push
// asks for the version it helps to make, so while ours are still to come nothing is pulled.
std::optional<Version> Session::VersionToPull(const ShardState& shard) const {
  if (!has_started_) return std::nullopt;
  for (const Work& work : works_) {
    const Version version = VersionReadBy(work.step);
    if (HasOf(shard, version)) continue;
    const bool is_first = &work == &works_.front();
    const bool is_unasked = works_.front().open_calls == 0 &&
                            std::ranges::none_of(shard.pushes, [&](const Unreplied& push) {
                              return VersionMadeBy(push.step) == version;
                            });
    if (is_first || version <= shard.known || is_unasked) return version;
  }
  return std::nullopt;
}

void Session::NoteAsked(Micros now, ShardState& shard, Version version) {
  shard.ask_at = kNever;
  shard.asked_at = now;
  shard.asked = std::max(shard.asked, version);
}

// A version that no push of ours asks for; and again, in a new view, who was not primary, and what
// was lost. What we compute with comes before what a relay waits for (P6a).
void Session::AskWhatIsDue(Micros now) {
  std::map<PeerId, Push> pushes;
  std::map<PeerId, Pull> pulls;
  for (size_t i = 0; i < shards_.size(); ++i) {
    ShardState& shard = shards_[i];
    const ShardId id(static_cast<uint32_t>(i));
    std::optional<Version> wanted = VersionToPull(shard);
    if (now < shard.ask_at && !(wanted && *wanted > shard.asked)) continue;
    bool has_repeated = false;
    for (const Unreplied& push : shard.pushes) {
      if (!push.is_pushed() || Mutated(Mutation::kNoRetransmission)) continue;
      if (push.is_held) wanted = std::min(wanted.value_or(kNoVersion), VersionMadeBy(push.step));
      if (push.is_held) continue;
      pushes[PrimaryOf(id)].items.push_back({id, push.step, push.node, push.payload});
      has_repeated = true;
    }
    if (wanted) pulls[PrimaryOf(id)].items.push_back({id, *wanted, plan_.training_form()});
    if (!wanted && !has_repeated) continue;
    NoteAsked(now, shard, wanted.value_or(Version(0)));
    Expect(now, PrimaryOf(id));
  }
  const auto is_pulled = [this](const WantedShards::Key& key) { return IsPulledAsWanted(key); };
  for (const WantedShards::Key& key : wanted_.TakeDue(now, is_pulled)) {
    const bool is_for_training = key.use == ParameterUse::kTraining;
    const ParamsForm form = is_for_training ? plan_.training_form() : ParamsForm::kExact;
    pulls[PrimaryOf(key.shard)].items.push_back({key.shard, key.version, form});
  }
  for (auto& [lane, all] : pushes) {
    for (auto& items : InMessages(std::move(all.items))) AskLane(now, lane, Push{std::move(items)});
  }
  for (auto& [lane, pull] : pulls) AskLane(now, lane, std::move(pull));
}

// ---- what was lost ------------------------------------------------------------------------------
// P10. Over a slow link a step's gradients take seconds, and their replies as long: repeated on a
// timer, they would be all that it carries. So a lane that is silent is asked what it holds (P17's
// question). Its answer comes behind all that it was sent before, and behind all that it replied:
// what that lacks was lost.

// It was sent something that asks for data, or they come.
void Session::Expect(Micros now, const PeerId& lane) {
  LaneDebt& debt = debts_[lane];
  debt.interval = kDataRetryFirst;
  debt.question_at = now + debt.interval;
}

bool Session::Owes(const PeerId& lane) const {
  for (size_t i = 0; i < shards_.size(); ++i) {
    const ShardState& shard = shards_[i];
    if (PrimaryOf(ShardId(static_cast<uint32_t>(i))) != lane) continue;
    if (std::ranges::any_of(shard.pushes, &Unreplied::is_pushed) || VersionToPull(shard))
      return true;
  }
  return false;
}

void Session::QuestionSilentLanes(Micros now) {
  if (Mutated(Mutation::kNoRetransmission)) return;
  for (auto& [lane, debt] : debts_) {
    if (now < debt.question_at) continue;
    debt.question_at = kNever;
    if (!Owes(lane)) continue;
    AskQuestion(now, lane);
    debt.interval = std::min(2 * debt.interval, kDataRetryMax);
    debt.question_at = now + debt.interval;
  }
}

// It is answered at once when it is there: behind what is under way (P23).
void Session::AskQuestion(Micros now, const PeerId& lane) {
  LaneDebt& debt = debts_[lane];
  if (debt.asked_from == kNever) debt.asked_from = now;
  const Micros under_way(BytesUnderWay(lane) / kSlowestBytesPerMicro);
  AskLane(now + under_way, lane, Question{member_.view().id});
}

size_t Session::BytesUnderWay(const PeerId& lane) const {
  size_t bytes = 0;
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (PrimaryOf(ShardId(static_cast<uint32_t>(i))) != lane) continue;
    for (const Unreplied& push : shards_[i].pushes) {
      if (push.is_pushed() && !push.is_held) bytes += push.payload.size_bytes();
    }
  }
  return bytes;
}

void Session::FindLost(Micros now, const PeerId& lane, const Answer& answer) {
  const Micros asked_from = std::exchange(debts_[lane].asked_from, kNever);
  if (asked_from == kNever) return;
  for (const AnswerItem& item : answer.items) {
    if (item.shard.value() >= shards_.size() || PrimaryOf(item.shard) != lane) continue;
    ShardState& shard = shards_[item.shard.value()];
    if (shard.asked_at < asked_from) FindLost(shard, item);
  }
  if (questions_.empty()) AdvanceWork(now);  // else once all have answered
}

// What is held is asked about once more: that we wait for it may have been lost with our pull.
void Session::FindLost(ShardState& shard, const AnswerItem& item) {
  LearnCommitted(item.shard, item.version);
  bool is_any_held = false;
  for (Unreplied& push : shard.pushes) {
    if (!push.is_pushed()) continue;
    // One that was promoted may hold it, and not know that the version it reads is committed.
    const bool is_judged = VersionReadBy(push.step) <= item.version;
    if (push.is_held && !is_judged) continue;
    push.is_held = HoldsNode(item, push.node, push.step);
    push.is_sent = push.is_held;
    is_any_held |= push.is_held;
  }
  if (is_any_held || VersionToPull(shard)) shard.ask_at = Micros(0);
}

// A version that is not known to be committed comes by our push for it, or is pulled for the
// barrier.
bool Session::IsPulledAsWanted(const WantedShards::Key& key) const {
  return key.use == ParameterUse::kEvaluation || key.version <= shards_[key.shard.value()].known;
}

void Session::PullForEvaluation(Micros now) {
  if (!evaluation_ || !evaluation_->request || now < evaluation_->ask_at) return;
  std::map<PeerId, Pull> pulls;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const ShardId id(static_cast<uint32_t>(i));
    if (!evaluation_->arrived[i]) pulls[PrimaryOf(id)].items.push_back({id, evaluation_->version});
  }
  for (auto& [lane, pull] : pulls) AskLane(now, lane, std::move(pull));
  evaluation_->interval = std::clamp(2 * evaluation_->interval, kDataRetryFirst, kDataRetryMax);
  evaluation_->ask_at = pulls.empty() ? kNever : now + evaluation_->interval;
}

// While some come, the others may be on their way.
void Session::PutOffEvaluationPull(Micros now) {
  evaluation_->ask_at = std::max(evaluation_->ask_at, now + kDataRetryFirst);
}

Micros Session::NextDeadline() const {
  if (finished()) return kNever;
  Micros deadline = !is_member_ || failure_ || is_leaving_ ? control_at_ : kNever;
  deadline = std::min(deadline, window_.NextDeadline());
  deadline = std::min(deadline, silence_.NextDeadline());
  if (!questions_.empty()) {
    deadline = std::min(deadline, question_at_);
  } else if (IsWaiting()) {
    deadline = std::min(deadline, help_at_);
  }
  deadline = std::min(deadline, gradient_reports_.NextDeadline());
  deadline = std::min(deadline, bad_pictures_.NextDeadline());
  if (evaluation_ && evaluation_->request) deadline = std::min(deadline, evaluation_->ask_at);
  deadline = std::min({deadline, host_.ask_at(), host_.look_again_at()});
  for (const auto& [lane, debt] : debts_) deadline = std::min(deadline, debt.question_at);
  for (const ShardState& shard : shards_) {
    if (shard.ask_at == kNever) continue;
    const bool has_sent = std::ranges::any_of(shard.pushes, &Unreplied::is_pushed);
    if (has_sent || VersionToPull(shard)) deadline = std::min(deadline, shard.ask_at);
  }
  return std::min(deadline, wanted_.NextDeadline([this](const WantedShards::Key& key) {
    return IsPulledAsWanted(key);
  }));
}

size_t Session::unreplied_count() const {
  size_t count = 0;
  for (const ShardState& shard : shards_) count += shard.pushes.size();
  return count;
}

Heartbeat Session::CurrentActivity(Micros now) const {
  Heartbeat heartbeat;
  if (!works_.empty()) heartbeat.step = works_.front().step;
  const bool is_computing =
      std::ranges::any_of(works_, [](const Work& work) { return work.open_calls > 0; });
  const bool is_waiting = !works_.empty() && works_.front().open_calls == 0;
  if (stop_ || is_leaving_) {
    heartbeat.activity = Activity::kLeaving;
  } else if (!is_member_) {
    heartbeat.activity = Activity::kStarting;
  } else if (evaluation_ && evaluation_->request) {
    heartbeat.activity = Activity::kEvaluating;
  } else if (is_waiting) {
    const auto lowest = std::ranges::min_element(shards_, {}, &ShardState::known);
    heartbeat.activity = Activity::kWaitingForParameters;
    if (bad_pictures_.is_settled()) {  // else it is we who have not pushed yet
      const ShardId id(static_cast<uint32_t>(lowest - shards_.begin()));
      const bool is_given = std::ranges::any_of(lowest->pushes, &Unreplied::is_given);
      heartbeat.waiting_for = is_given ? host_.group().relay : PrimaryOf(id);
    }
    heartbeat.waiting_ms = static_cast<uint64_t>((now - waiting_since_).count()) / 1000;
  } else {
    heartbeat.activity = is_computing ? Activity::kComputing : Activity::kIdle;
  }
  return heartbeat;
}

}  // namespace pando
