// ShardAnswers: what the primaries say in one view that they hold (P17), by shard. Gathered by
// Questions, read by Steps and Helping. Threads: none.
#pragma once

#include <algorithm>
#include <map>

#include "plan/step_plan.h"
#include "proto/messages.h"

namespace pando {

// Whether the shard has this micro-batch's part of the step that reads the version it answered
// with.
inline bool IsHeld(const AnswerItem& item, MicroBatch m, const MicroBatchTree& tree) {
  return std::ranges::any_of(item.nodes, [&](TreeNode node) {
    if (node.value() < 1 || node.value() >= tree.node_bound()) return false;
    const MicroBatchRange range = tree.Range(node);
    return m.value() >= range.first && m.value() < range.last;
  });
}

// The same of a node: the shard has it, or one above it.  `tree`: of `step`.
inline bool IsHeld(const AnswerItem& item, Step step, TreeNode node, const MicroBatchTree& tree) {
  return StepReading(item.version) == step && std::ranges::any_of(item.nodes, [&](TreeNode held) {
           if (held.value() < 1 || held.value() >= tree.node_bound()) return false;
           return held == node || tree.IsAncestor(held, node);
         });
}

class ShardAnswers {
 public:
  void Clear() { items_.clear(); }
  void Add(const AnswerItem& item) { items_.insert_or_assign(item.shard, item); }
  size_t size() const { return items_.size(); }
  const std::map<ShardId, AnswerItem>& items() const { return items_; }

  // Some shard has this version and lacks the micro-batch's part of the next one.
  bool IsMissing(MicroBatch m, Version version, const MicroBatchTree& tree) const {
    return std::ranges::any_of(items_, [&](const auto& answer) {
      return answer.second.version == version && !IsHeld(answer.second, m, tree);
    });
  }
  // Some shard answered with an older version.
  bool IsBehind(Version version) const {
    return std::ranges::any_of(items_,
                               [&](const auto& answer) { return answer.second.version < version; });
  }

 private:
  std::map<ShardId, AnswerItem> items_;
};

}  // namespace pando
