// Who computes what, as a view says it (P17, P18). Asked by the worker's session.
#pragma once

#include <vector>

#include "common/step_plan.h"
#include "proto/messages.h"

namespace pando {

// P18: who computes micro-batch `owner` of this step.
inline NodeId ComputesAt(const MicroBatchOwner& owner, Step step) {
  return step >= owner.first_step || owner.previous == kUnknownNode ? owner.worker : owner.previous;
}

// The micro-batches of this step that the view gives to this worker, ascending, absent ones left
// out.
inline std::vector<MicroBatch> AssignedTo(const View& view, NodeId worker, Step step,
                                          const MicroBatchTree& tree) {
  std::vector<MicroBatch> assigned;
  for (uint32_t m = 0; m < view.owners.size(); ++m) {
    const bool mine = ComputesAt(view.owners[m], step) == worker;
    if (mine && tree.IsPresent(MicroBatch(m))) assigned.emplace_back(m);
  }
  return assigned;
}

}  // namespace pando
