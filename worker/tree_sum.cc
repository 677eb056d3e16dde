#include "worker/tree_sum.h"

#include <span>
#include <utility>

#include "common/check.h"

namespace pando {
namespace {

void AddInto(std::span<float> left, std::span<const float> right) {
  float* __restrict l = left.data();
  const float* __restrict r = right.data();
  for (size_t i = 0; i < left.size(); ++i) l[i] += r[i];
}

}  // namespace

TreeSum::TreeSum(const MicroBatchTree& tree, const std::vector<MicroBatch>& assigned,
                 const ShardPlan& shards, Emit emit)
    : tree_(tree),
      shards_(shards),
      emit_(std::move(emit)),
      is_emitted_(tree.node_bound()),
      waiting_(size_t{tree.node_bound()} / 2 * shards.shard_count()) {
  for (TreeNode node : tree_.Cover(assigned)) is_emitted_[node.value()] = true;
}

void TreeSum::Add(MicroBatch m, ShardPlan::Run shards, const SharedBuffer& gradients) {
  for (uint32_t s = shards.first; s < shards.last; ++s) AddShard(m, ShardId(s), gradients);
}

void TreeSum::AddShard(MicroBatch m, ShardId shard, SharedBuffer sum) {
  const ShardRange& range = shards_.range(shard);
  TreeNode node = tree_.Leaf(m);
  while (!is_emitted_[node.value()]) {
    const TreeNode parent = tree_.Parent(node);
    std::optional<SharedBuffer> sibling = MeetSibling(parent, shard, sum);
    if (!sibling.has_value()) return;
    SharedBuffer right = std::move(*sibling);
    if (!tree_.IsLeft(node)) std::swap(sum, right);
    AddInto(sum->span().subspan(range.first, range.size()),
            std::as_const(*right).span().subspan(range.first, range.size()));
    node = parent;
  }
  emit_(node, shard, ToBlob(std::move(sum), range.first, range.size()));
}

std::optional<SharedBuffer> TreeSum::MeetSibling(TreeNode parent, ShardId shard,
                                                 const SharedBuffer& sum) {
  std::lock_guard lock(mutex_);
  SharedBuffer& place = waiting_[size_t{parent.value()} * shards_.shard_count() + shard.value()];
  if (place != nullptr) return std::exchange(place, nullptr);
  place = sum;
  return std::nullopt;
}

}  // namespace pando
