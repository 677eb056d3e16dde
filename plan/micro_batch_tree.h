// MicroBatchTree is the fixed binary tree over the micro-batches of one step (P2, P2a, P3). Workers
// and servers sum gradients along it, so the result does not depend on where a sum was made.
//
// Nodes are numbered as in a heap over the next power of two P ≥ micro_batch_count: the root is 1,
// the children of i are 2i and 2i + 1, and micro-batch m is leaf P + m. A leaf is absent if it has
// no samples: m ≥ N, or a short batch has ⌊mB/N⌋ = ⌊(m+1)B/N⌋. An absent sibling is passed through,
// not added as zero. So a node with an absent child is the same sum as its other child. Only the
// highest of such equal nodes is a name: the *canonical* one. Contributions carry canonical names.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/ids.h"

namespace pando {

struct MicroBatchRange {  // [first, last), in micro-batch indices
  uint32_t first = 0;
  uint32_t last = 0;
  bool operator==(const MicroBatchRange&) const = default;
};

class MicroBatchTree {
 public:
  struct Shape {
    uint32_t micro_batch_count = 1;  // N ≥ 1
    uint64_t sample_count = 1;       // B ≥ 1, samples in this step's batch
  };
  explicit MicroBatchTree(Shape shape);

  static constexpr TreeNode kRoot{1};
  const Shape& shape() const { return shape_; }

  bool IsPresent(MicroBatch m) const;
  // Returns a node's micro-batches, absent ones included, cut at N.  REQUIRES: node in [1, 2P).
  MicroBatchRange Range(TreeNode node) const;
  // Returns whether `node` is a canonical name: present, and not its parent's only present child.
  bool IsCanonical(TreeNode node) const;
  // Returns the highest node with the same sum.  REQUIRES: a present leaf is below node.
  TreeNode Canonical(TreeNode node) const;
  TreeNode Leaf(MicroBatch m) const { return Canonical(TreeNode(leaf_base_ + m.value())); }

  // Return a canonical node's canonical neighbours.  REQUIRES: node is canonical and not the root.
  TreeNode Sibling(TreeNode node) const;
  TreeNode Parent(TreeNode node) const;
  bool IsLeft(TreeNode node) const { return (node.value() & 1) == 0; }
  // Returns the two canonical children, or none for the sum of one leaf.
  struct Children {
    TreeNode left;
    TreeNode right;
  };
  std::optional<Children> FindChildren(TreeNode node) const;
  bool IsAncestor(TreeNode ancestor, TreeNode node) const;  // proper ancestor

  // Returns the fewest canonical nodes whose leaves are the present ones of `assigned`, ascending.
  std::vector<TreeNode> Cover(const std::vector<MicroBatch>& assigned) const;
  std::vector<MicroBatch> PresentLeaves() const;
  // All nodes are below this bound.
  uint32_t node_bound() const { return 2 * leaf_base_; }

 private:
  bool HasPresentLeaf(TreeNode node) const;

  Shape shape_;
  uint32_t leaf_base_;  // P
};

}  // namespace pando
