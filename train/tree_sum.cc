#include "train/tree_sum.h"

#include <utility>

#include "kernels/ops.h"

namespace pando {

TreeSum::TreeSum(const MicroBatchTree& tree, const std::vector<TreeNode>& nodes,
                 const ShardPlan& shards, Device device)
    : tree_(tree),
      shards_(shards),
      device_(device),
      is_emitted_(tree.node_bound()),
      waiting_(size_t{tree.node_bound()} / 2 * shards.shard_count()) {
  for (TreeNode node : nodes) is_emitted_[node.value()] = true;
}

std::optional<CompleteSum> TreeSum::Add(MicroBatch m, ShardId shard, SharedBuffer sum) {
  const ShardRange& range = shards_.range(shard);
  TreeNode node = tree_.Leaf(m);
  while (!is_emitted_[node.value()]) {
    const TreeNode parent = tree_.Parent(node);
    SharedBuffer right = MeetSibling(parent, shard, sum);
    if (right == nullptr) return std::nullopt;
    if (!tree_.IsLeft(node)) std::swap(sum, right);
    AddFloats(device_, range.size(), right->data() + range.first, sum->data() + range.first);
    node = parent;
  }
  return CompleteSum{node, shard, ToBlob(std::move(sum), range.first, range.size())};
}

SharedBuffer TreeSum::MeetSibling(TreeNode parent, ShardId shard, const SharedBuffer& sum) {
  std::lock_guard lock(mutex_);
  SharedBuffer& place = waiting_[size_t{parent.value()} * shards_.shard_count() + shard.value()];
  if (place != nullptr) return std::exchange(place, nullptr);
  place = sum;
  return nullptr;
}

}  // namespace pando
