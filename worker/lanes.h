// Lanes: the servers' lanes as the session speaks to them: which one is a shard's primary, and
// which ones owe an answer for so long that the scheduler has to know (P23). Threads: none.
#pragma once

#include <utility>

#include "proto/silence.h"
#include "proto/view_member.h"

namespace pando {

class Lanes {
 public:
  // A lane that owes an answer for `patience` is reported. `member` outlives it.
  Lanes(Micros patience, ViewMember& member) : member_(member), silence_(patience) {}

  // A shard may have no primary for a while; its node is then kUnknownNode. A new view names one.
  const PeerId& primary(ShardId shard) const {
    return member_.view().shards[shard.value()].primary;
  }
  const ViewId& view_id() const { return member_.view().id; }
  // Sends nothing where there is no primary.
  void Send(const PeerId& lane, Message message) {
    if (lane.node != kUnknownNode) member_.Send(lane, std::move(message));
  }
  // The same for what a lane answers at once, if only with Pending, from `expected_from` on. A
  // fresh push is not answered at once: its answer is a version.
  void Ask(Micros expected_from, const PeerId& lane, Message message) {
    if (lane.node != kUnknownNode) silence_.Expect(expected_from, lane);
    Send(lane, std::move(message));
  }
  void HintView(Micros now, const PeerId& lane) { member_.HintView(now, lane); }

  void OnHeard(const PeerId& lane) { silence_.OnHeard(lane); }
  void EnterView() { silence_.Clear(); }
  void Tick(Micros now) {
    while (auto silent = silence_.TakeDue(now)) member_.SendToScheduler(*silent);
  }
  Micros NextDeadline() const { return silence_.NextDeadline(); }

 private:
  ViewMember& member_;
  Silence silence_;
};

}  // namespace pando
