// Questions: on each new view, and before help, every primary is asked which version it has and
// what it holds of the next step (P17). Used by the session. Threads: none.
#pragma once

#include <map>

#include "proto/view_member.h"
#include "worker/lane_requests.h"
#include "worker/lanes.h"
#include "worker/shard_answers.h"

namespace pando {

class Questions {
 public:
  static constexpr Micros kRetryFirst = std::chrono::milliseconds(10);
  static constexpr Micros kRetryMax = std::chrono::milliseconds(200);
  // A lane that has not answered for so long may not have received our view.
  static constexpr Micros kHintAfter = std::chrono::milliseconds(100);

  // All outlive it.
  Questions(const ViewMember& member, Lanes& lanes, LaneRequests& requests)
      : member_(member), lanes_(lanes), requests_(requests) {}

  void EnterView(Micros now);
  // Asks every primary, from this time on.
  void Ask(Micros at);
  void Cancel() { lanes_asked_.clear(); }
  // Whether answers are still to come.
  bool is_open() const { return !lanes_asked_.empty(); }
  // True if it was the last one: all primaries have answered in this view.
  bool OnAnswer(Micros now, const PeerId& from, const Answer& answer);
  // Of the last questions; complete once all have answered.
  const ShardAnswers& answers() const { return answers_; }

  void Tick(Micros now);
  Micros NextDeadline() const { return is_open() ? ask_at_ : kNever; }

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
