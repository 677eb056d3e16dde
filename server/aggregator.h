// Aggregator sums one shard's gradients of one step over the fixed micro-batch tree, so the result
// depends neither on which worker sent what nor on arrival order (P2, P3). Called by the shard.
// Threads: none. Owns: its partial sums; contributions stay where they arrived, in the received
// frame, and are summed straight from there. Invariant I1.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "common/blob.h"
#include "common/float_buffer.h"
#include "plan/micro_batch_tree.h"
#include "plan/shard_codec.h"

namespace pando {

class Aggregator {
 public:
  // `codec`: how contributions travel; null: as floats. It outlives the aggregator. `buffers`: of
  // its sums, since a root travels on.
  explicit Aggregator(size_t float_count, const ShardCodec* codec = nullptr,
                      const BufferSource& buffers = {})
      : pool_(float_count, buffers), float_count_(float_count), codec_(codec) {}

  // Forgets everything and waits for the contributions of a step with this tree.
  void Begin(const MicroBatchTree& tree) {
    tree_ = tree;
    sums_.clear();
    right_half_.reset();
  }

  // REQUIRES: IsCanonical(node) in the tree; the payload is of the shard's size as it is sent.
  // False if the node, or an ancestor of it, is held already: it is the same bits and is dropped.
  bool Add(TreeNode node, const Blob& payload);

  bool is_complete() const { return sums_.contains(MicroBatchTree::kRoot); }
  // Makes the last addition.  REQUIRES: is_complete().  The sum over all samples of the step,
  // unscaled. A copy of the blob keeps the bytes after the step, for repeats (P8, P22).
  const Blob& root();
  // The root, or two halves that add up to it: for a caller that reads it once, block by block, and
  // does not send it.
  struct Halves {
    Blob left;
    Blob right;  // empty: left is the root
  };
  Halves root_halves() const;  // REQUIRES: is_complete()
  // The nodes held, ascending, for an Answer (P17). A partial sum counts as its own node.
  std::vector<TreeNode> held_nodes() const;
  const MicroBatchTree& tree() const { return tree_; }

 private:
  struct Sum {
    Blob values;       // the contribution as received, or a view of `own`
    SharedBuffer own;  // set once this is a sum of ours, which may be added into
  };
  bool HoldsAncestorOrSelf(TreeNode node) const;
  void DropDescendants(TreeNode node) {
    std::erase_if(sums_, [&](const auto& held) { return tree_.IsAncestor(node, held.first); });
  }
  Sum Merge(const Sum& left, const Sum& right);
  Sum Decoded(TreeNode* node, const Blob& payload);
  bool AddInArrivalOrder(TreeNode node, const Blob& payload);  // Mutation::kSumInArrivalOrder

  BufferPool pool_;
  size_t float_count_;
  const ShardCodec* codec_;
  MicroBatchTree tree_{{}};
  std::map<TreeNode, Sum> sums_;
  std::optional<Sum>
      right_half_;  // of the root, whose left half is in sums_ until root() is called
};

}  // namespace pando
