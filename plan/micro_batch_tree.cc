#include "plan/micro_batch_tree.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace pando {
namespace {

TreeNode RawParent(TreeNode node) { return TreeNode(node.value() / 2); }
TreeNode RawSibling(TreeNode node) { return TreeNode(node.value() ^ 1); }

}  // namespace

MicroBatchTree::MicroBatchTree(Shape shape)
    : shape_(shape), leaf_base_(std::bit_ceil(shape.micro_batch_count)) {
  PANDO_CHECK(shape.micro_batch_count >= 1 && shape.sample_count >= 1);
}

MicroBatchRange MicroBatchTree::Range(TreeNode node) const {
  PANDO_CHECK(node.value() >= 1 && node.value() < node_bound());
  int levels_below = std::countl_zero(node.value()) - std::countl_zero(leaf_base_);
  uint32_t first = (node.value() << levels_below) - leaf_base_;
  uint32_t last = first + (1u << levels_below);
  return {std::min(first, shape_.micro_batch_count), std::min(last, shape_.micro_batch_count)};
}

bool MicroBatchTree::HasPresentLeaf(TreeNode node) const {
  MicroBatchRange range = Range(node);
  const uint64_t n = shape_.micro_batch_count;
  return range.first * shape_.sample_count / n < range.last * shape_.sample_count / n;
}

bool MicroBatchTree::IsPresent(MicroBatch m) const {
  return m.value() < shape_.micro_batch_count && HasPresentLeaf(TreeNode(leaf_base_ + m.value()));
}

bool MicroBatchTree::IsCanonical(TreeNode node) const {
  if (node.value() < 1 || node.value() >= node_bound() || !HasPresentLeaf(node)) return false;
  return node == kRoot || HasPresentLeaf(RawSibling(node));
}

TreeNode MicroBatchTree::Canonical(TreeNode node) const {
  PANDO_CHECK(HasPresentLeaf(node));
  while (node != kRoot && !HasPresentLeaf(RawSibling(node))) node = RawParent(node);
  return node;
}

TreeNode MicroBatchTree::Sibling(TreeNode node) const {
  PANDO_CHECK(node != kRoot && IsCanonical(node));
  return RawSibling(node);
}

TreeNode MicroBatchTree::Parent(TreeNode node) const {
  PANDO_CHECK(node != kRoot && IsCanonical(node));
  return Canonical(RawParent(node));
}

std::optional<MicroBatchTree::Children> MicroBatchTree::FindChildren(TreeNode node) const {
  while (node.value() < leaf_base_) {
    TreeNode left(2 * node.value());
    TreeNode right(2 * node.value() + 1);
    bool has_left = HasPresentLeaf(left);
    if (has_left && HasPresentLeaf(right)) return Children{left, right};
    node = has_left ? left : right;
  }
  return std::nullopt;
}

bool MicroBatchTree::IsAncestor(TreeNode ancestor, TreeNode node) const {
  int levels = std::countl_zero(ancestor.value()) - std::countl_zero(node.value());
  return levels > 0 && (node.value() >> levels) == ancestor.value();
}

std::vector<TreeNode> MicroBatchTree::Cover(const std::vector<MicroBatch>& assigned) const {
  std::vector<TreeNode> cover;  // a stack: a complete right sibling merges with the left one on top
  for (MicroBatch m : assigned) {
    if (!IsPresent(m)) continue;
    TreeNode node = Leaf(m);
    while (node != kRoot && !IsLeft(node) && !cover.empty() && cover.back() == Sibling(node)) {
      cover.pop_back();
      node = Parent(node);
    }
    cover.push_back(node);
  }
  return cover;
}

std::vector<MicroBatch> MicroBatchTree::PresentLeaves() const {
  std::vector<MicroBatch> leaves;
  for (uint32_t m = 0; m < shape_.micro_batch_count; ++m) {
    if (IsPresent(MicroBatch(m))) leaves.emplace_back(m);
  }
  return leaves;
}

}  // namespace pando
