// Lanes sends the session's messages to the servers' lanes, and knows which lane is a shard's
// primary. It reports lanes that owe an answer for too long to the scheduler (P23). Used by the
// session. Threads: none.
#pragma once

#include <map>
#include <utility>
#include <vector>

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
  // Sends nothing where there is no primary.
  void Send(const PeerId& lane, Message message) {
    if (lane.node != kUnknownNode) member_.Send(lane, std::move(message));
  }
  // The same for a message that the lane answers at once, even if only with Pending. The answer is
  // expected from `expected_from` on. A fresh push is not answered at once: its answer is a
  // version.
  void Ask(Micros expected_from, const PeerId& lane, Message message) {
    if (lane.node != kUnknownNode) silence_.Expect(expected_from, lane);
    Send(lane, std::move(message));
  }
  // Asks the shards' primaries for these.
  void AskFor(Micros now, const std::vector<PullItem>& items) {
    std::map<PeerId, Pull> pulls;
    for (const PullItem& item : items) pulls[primary(item.shard)].items.push_back(item);
    for (auto& [lane, pull] : pulls) Ask(now, lane, std::move(pull));
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
