// Questions asks every primary, on each new view and before help, which version it has and what it
// holds of the next step (P17). Used by the session. Threads: none.
#pragma once

#include <algorithm>
#include <map>

#include "worker/lane_requests.h"
#include "worker/shard_answers.h"

namespace pando {

class Questions {
 public:
  static constexpr Micros kRetryFirst = std::chrono::milliseconds(10);
  static constexpr Micros kRetryMax = std::chrono::milliseconds(200);
  // A lane that does not answer within this time may not have received our view.
  static constexpr Micros kHintAfter = std::chrono::milliseconds(100);

  // All outlive it.
  Questions(const ViewMember& member, Lanes& lanes, LaneRequests& requests)
      : member_(member), lanes_(lanes), requests_(requests) {}

  void EnterView(Micros now) {
    interval_ = kRetryFirst;
    Ask(now);
  }
  // Asks every primary, from this time on.
  void Ask(Micros at) {
    lanes_asked_.clear();
    answers_.Clear();
    for (const ShardPlacement& placement : member_.view().shards)
      lanes_asked_.emplace(placement.primary, false);
    ask_at_ = at;
  }
  // Returns whether answers are still to come.
  bool is_open() const { return !lanes_asked_.empty(); }

  // Returns whether it was the last answer: all primaries have answered in this view.
  bool OnAnswer(Micros now, const PeerId& from, const Answer& answer) {
    const auto asked = lanes_asked_.find(from);
    if (asked == lanes_asked_.end() || asked->second) return false;
    asked->second = true;
    const size_t shard_count = member_.view().shards.size();
    for (const AnswerItem& item : answer.items) {
      if (item.shard.value() < shard_count) answers_.Add(item);
    }
    for (const auto& [lane, has_answered] : lanes_asked_) {
      if (!has_answered) return false;
    }
    if (answers_.size() < shard_count) {  // a shard is still being restored
      Ask(now + interval_);
      return false;
    }
    lanes_asked_.clear();
    interval_ = kRetryFirst;
    return true;
  }
  // The answers to the last questions. They are complete once all primaries have answered.
  const ShardAnswers& answers() const { return answers_; }

  void Tick(Micros now) {
    if (now < NextDeadline()) return;
    for (const auto& [lane, has_answered] : lanes_asked_) {
      if (has_answered || lane.node == kUnknownNode) continue;
      if (interval_ > kHintAfter) lanes_.HintView(now, lane);
      requests_.SendQuestion(now, lane);
    }
    ask_at_ = now + interval_;
    interval_ = std::min(2 * interval_, kRetryMax);
  }
  // A worker that waits for the first view with itself asks nothing: lanes drop its messages.
  Micros NextDeadline() const { return is_open() && member_.is_in_view() ? ask_at_ : kNever; }

 private:
  const ViewMember& member_;
  Lanes& lanes_;
  LaneRequests& requests_;
  std::map<PeerId, bool> lanes_asked_;  // whether they have answered
  ShardAnswers answers_;
  Micros ask_at_{0};
  Micros interval_{0};
};

}  // namespace pando
