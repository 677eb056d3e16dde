// ShardAnswers has the primaries' answers in one view: what they hold of each shard (P17). Threads:
// none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "common/ids.h"
#include "plan/step_plan.h"
#include "proto/messages.h"

namespace pando {

// Returns the nodes that the answer names for this step; null if it names no nodes of the step.
inline const std::vector<TreeNode>* NodesNamed(const AnswerItem& item, Step step,
                                               const StepPlan& steps) {
  const Step first = StepUpdating(item.version);
  if (step == first) return &item.nodes;
  return steps.staleness() > 0 && step == NextStep(first) ? &item.later_nodes : nullptr;
}

// Returns whether these nodes have all of these micro-batches.
inline bool AreHeld(const std::vector<TreeNode>& nodes, MicroBatchRange wanted,
                    const MicroBatchTree& tree) {
  return std::ranges::any_of(nodes, [&](TreeNode node) {
    if (node.value() < 1 || node.value() >= tree.node_bound()) return false;
    const MicroBatchRange held = tree.Range(node);
    return held.first <= wanted.first && wanted.last <= held.last;
  });
}

class ShardAnswers {
 public:
  void Clear() { items_.clear(); }
  void Add(const AnswerItem& item) { items_.insert_or_assign(item.shard, item); }
  size_t size() const { return items_.size(); }
  const std::map<ShardId, AnswerItem>& items() const { return items_; }

  // Some shard's answer names nodes of this step, and the micro-batch is not in them.
  bool IsMissing(MicroBatch m, Step step, const StepPlan& steps) const {
    const MicroBatchTree tree = steps.Tree(step);
    return std::ranges::any_of(items_, [&](const auto& answer) {
      const std::vector<TreeNode>* nodes = NodesNamed(answer.second, step, steps);
      return nodes != nullptr && !AreHeld(*nodes, {m.value(), m.value() + 1}, tree);
    });
  }
  // Some shard's answer names nodes of earlier steps alone, so that it lacks all of this one.
  bool IsBehind(Step step, const StepPlan& steps) const {
    return std::ranges::any_of(items_, [&](const auto& answer) {
      return steps.LastStepToSend(answer.second.version) < step;
    });
  }

 private:
  std::map<ShardId, AnswerItem> items_;
};

}  // namespace pando
