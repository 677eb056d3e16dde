#include "worker/questions.h"

#include <algorithm>

namespace pando {

void Questions::EnterView(Micros now) {
  interval_ = kRetryFirst;
  Ask(now);
}

void Questions::Ask(Micros at) {
  lanes_asked_.clear();
  answers_.Clear();
  for (const ShardPlacement& placement : member_.view().shards)
    lanes_asked_.emplace(placement.primary, false);
  ask_at_ = at;
}

void Questions::Tick(Micros now) {
  if (now < NextDeadline()) return;
  for (const auto& [lane, has_answered] : lanes_asked_) {
    if (has_answered || lane.node == kUnknownNode) continue;
    if (interval_ > kHintAfter) lanes_.HintView(now, lane);
    requests_.SendQuestion(now, lane);
  }
  ask_at_ = now + interval_;
  interval_ = std::min(2 * interval_, kRetryMax);
}

bool Questions::OnAnswer(Micros now, const PeerId& from, const Answer& answer) {
  const auto asked = lanes_asked_.find(from);
  if (asked == lanes_asked_.end() || asked->second) return false;
  const size_t shard_count = member_.view().shards.size();
  for (const AnswerItem& item : answer.items) {
    if (item.shard.value() < shard_count) answers_.Add(item);
  }
  asked->second = true;
  if (!std::ranges::all_of(lanes_asked_, [](const auto& lane) { return lane.second; }))
    return false;
  if (answers_.size() < shard_count) {  // a shard is still being restored
    Ask(now + interval_);
    return false;
  }
  lanes_asked_.clear();
  interval_ = kRetryFirst;
  return true;
}

}  // namespace pando
