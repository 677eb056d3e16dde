// Small pure questions about views and envelopes that every protocol core asks.
#pragma once

#include <map>
#include <vector>

#include "common/step_plan.h"
#include "proto/messages.h"
#include "proto/outbox.h"

namespace pando {

// P18: who computes micro-batch `owner` of this step.
inline NodeId ComputesAt(const MicroBatchOwner& owner, Step step) {
  return step >= owner.first_step || owner.previous == kUnknownNode ? owner.worker : owner.previous;
}

// The micro-batches of this step that the view gives to this worker, ascending, absent ones left out.
inline std::vector<MicroBatch> AssignedTo(const View& view, NodeId worker, Step step,
                                          const MicroBatchTree& tree) {
  std::vector<MicroBatch> assigned;
  for (uint32_t m = 0; m < view.owners.size(); ++m) {
    const bool mine = ComputesAt(view.owners[m], step) == worker;
    if (mine && tree.IsPresent(MicroBatch(m))) assigned.emplace_back(m);
  }
  return assigned;
}

// P19, P21: whether a core that is `self` in job and generation listens to this envelope at all.
inline bool IsForUs(const Envelope& envelope, const PeerId& self, JobId job, uint32_t generation) {
  return envelope.job == job && envelope.generation == generation &&
         envelope.receiver.incarnation == self.incarnation && envelope.receiver.lane == self.lane;
}

// Limits how often something unasked (P13: our newer view) is said to the same peer.
class RateLimit {
 public:
  explicit RateLimit(Micros interval) : interval_(interval) {}
  bool Allow(Micros now, Incarnation peer) {
    auto [it, is_new] = next_.try_emplace(peer, now);
    if (!is_new && now < it->second) return false;
    it->second = now + interval_;
    return true;
  }

 private:
  Micros interval_;
  std::map<Incarnation, Micros> next_;
};

}  // namespace pando
