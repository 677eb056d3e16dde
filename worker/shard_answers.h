// ShardAnswers has the primaries' answers in one view: what they hold of each shard (P17). Threads:
// none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>

#include "common/ids.h"
#include "plan/micro_batch_tree.h"
#include "proto/messages.h"

namespace pando {

// Returns whether the shard has all of these micro-batches of the step that reads the version in
// its answer.
inline bool IsHeld(const AnswerItem& item, MicroBatchRange wanted, const MicroBatchTree& tree) {
  return std::ranges::any_of(item.nodes, [&](TreeNode node) {
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

  // Some shard has this version and lacks the micro-batch's part of the next one.
  bool IsMissing(MicroBatch m, Version version, const MicroBatchTree& tree) const {
    return std::ranges::any_of(items_, [&](const auto& answer) {
      return answer.second.version == version &&
             !IsHeld(answer.second, {m.value(), m.value() + 1}, tree);
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
