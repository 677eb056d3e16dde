#include "worker/lane_requests.h"

#include <algorithm>
#include <utility>

#include "proto/item_messages.h"

namespace pando {
namespace {

constexpr Version kNoVersion(UINT64_MAX);

}  // namespace

// A lane that has the version already sends it only on request. So an earlier request for another
// version is no reason to wait.
void LaneRequests::OnStepBegun(Step step) {
  if (parameters_.is_layered()) return;
  const Version version = plan_.steps.VersionReadBy(step);
  for (uint32_t s = 0; s < asks_.size(); ++s) {
    const ShardId shard(s);
    if (versions_.known(shard) >= version && !parameters_.HasVersion(shard, version))
      AskFrom(shard, Micros(0));
  }
}

Micros LaneRequests::NextDeadline() const {
  if (!looks_at_.empty() || works_seen_ != parameters_.works_change_count()) return Micros(0);
  const Micros due_at = due_.empty() ? kNever : due_.begin()->first;
  return std::min({parameters_.wanted().NextDeadline(), due_at, question_at_});
}

bool LaneRequests::OnAnswer(const PeerId& lane, const Answer& answer) {
  const Micros asked_from = std::exchange(debts_[lane].asked_from, kNever);
  if (asked_from == kNever) return false;
  for (const AnswerItem& item : answer.items) {
    if (!versions_.HasShard(item.shard) || lanes_.primary(item.shard) != lane) continue;
    if (asked_at(item.shard) < asked_from) FindLost(item);
  }
  return true;
}

// If the lane holds gradients, their version is asked for again, because our pull may have been
// lost.
void LaneRequests::FindLost(const AnswerItem& item) {
  versions_.Learn(item.shard, item.version);
  if (gradients_.JudgePushed(item) || parameters_.VersionToPull(item.shard)) {
    asks_[item.shard.value()].is_again = true;
    AskFrom(item.shard, Micros(0));
  }
}

void LaneRequests::QuestionSilentLanes(Micros now) {
  if (now < question_at_) return;
  question_at_ = kNever;
  for (auto& [lane, debt] : debts_) {
    if (now >= debt.question_at) {
      debt.question_at = kNever;
      if (!Owes(lane)) continue;
      SendQuestion(now, lane);
      debt.interval = std::min(2 * debt.interval, kRetryMax);
      debt.question_at = now + debt.interval;
    }
    question_at_ = std::min(question_at_, debt.question_at);
  }
}

bool LaneRequests::Owes(const PeerId& lane) const {
  for (uint32_t s = 0; s < asks_.size(); ++s) {
    const ShardId shard(s);
    if (lanes_.primary(shard) != lane) continue;
    if (gradients_.HasPushed(shard) || parameters_.VersionToPull(shard)) return true;
  }
  return false;
}

// The lane answers as soon as it has read the question, after the bytes that are on their way
// (P23).
void LaneRequests::SendQuestion(Micros now, const PeerId& lane) {
  Debt& debt = debts_[lane];
  if (debt.asked_from == kNever) debt.asked_from = now;
  const Micros under_way(BytesUnderWay(lane) / kSlowestBytesPerMicro);
  lanes_.Ask(now + under_way, lane, Question{member_.view().id});
}

size_t LaneRequests::BytesUnderWay(const PeerId& lane) const {
  size_t bytes = 0;
  for (uint32_t s = 0; s < asks_.size(); ++s) {
    if (lanes_.primary(ShardId(s)) != lane) continue;
    for (const UnrepliedGradient& gradient : gradients_.shard(ShardId(s))) {
      if (gradient.is_pushed() && !gradient.is_held) bytes += gradient.payload.size_bytes();
    }
  }
  return bytes;
}

// Versions that we compute with are asked for before those that a relay waits for (P6a).
void LaneRequests::AskWhatIsDue(Micros now) {
  Pushes pushes;
  std::vector<PullItem> pulls;
  for (const ShardId shard : TakeShardsToLookAt(now)) Gather(now, shard, &pushes, &pulls);
  for (const WantedShards::Key& key : parameters_.wanted().TakeDue(now)) {
    const bool is_for_training = key.use == ParameterUse::kTraining;
    const ParamsForm form = is_for_training ? plan_.training_form() : ParamsForm::kExact;
    pulls.push_back({key.shard, key.version, form});
  }
  for (auto& [lane, all] : pushes) {
    for (auto& items : InMessages(std::move(all.items)))
      lanes_.Ask(now, lane, Push{std::move(items)});
  }
  lanes_.AskFor(now, pulls);
}

std::set<ShardId> LaneRequests::TakeShardsToLookAt(Micros now) {
  std::set<ShardId> shards = std::exchange(looks_at_, {});
  for (; !due_.empty() && due_.begin()->first <= now; due_.erase(due_.begin()))
    shards.insert(due_.begin()->second);
  const uint64_t works = parameters_.works_change_count();
  if (std::exchange(works_seen_, works) != works) {
    for (uint32_t s = 0; s < asks_.size(); ++s) shards.insert(ShardId(s));
  }
  return shards;
}

// Asks for versions that no push requests. Repeats pushes that a lane refused because it was not
// primary, and pushes that were lost.
void LaneRequests::Gather(Micros now, ShardId shard, Pushes* pushes, std::vector<PullItem>* pulls) {
  Ask& ask = asks_[shard.value()];
  std::optional<Version> wanted = parameters_.VersionToPull(shard);
  if (now < ask.at && !(wanted && *wanted > Newest(shard, *wanted))) {
    if (ask.at != kNever) due_.insert({ask.at, shard});
    return;
  }
  const PeerId& lane = lanes_.primary(shard);
  bool has_repeated = false;
  const bool is_again = std::exchange(ask.is_again, false);
  for (const UnrepliedGradient& gradient : gradients_.shard(shard)) {
    if (!gradient.is_pushed() || !is_again) continue;
    if (gradient.is_held) {
      wanted = std::min(wanted.value_or(kNoVersion), VersionMadeBy(gradient.step));
      continue;
    }
    (*pushes)[lane].items.push_back({shard, gradient.step, gradient.node, gradient.payload});
    has_repeated = true;
  }
  if (wanted) pulls->push_back({shard, *wanted, plan_.training_form()});
  if (!wanted && !has_repeated) return;
  OnAsked(now, shard, wanted.value_or(Version(0)));
  Expect(now, lane);
}

}  // namespace pando
