// Aggregator sums one shard's gradients of one step over the fixed micro-batch tree. So the result
// depends neither on which worker sent what nor on the arrival order (P2, P3). The shard calls it.
// Threads: none. Owns: its partial sums. Contributions stay in the received frame, and are summed
// straight from there. Invariant I1.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "common/blob.h"
#include "common/buffer_pool.h"
#include "plan/micro_batch_tree.h"
#include "plan/shard_codec.h"

namespace pando {

class Aggregator {
 public:
  // `codec` decodes contributions; null: they are floats. It outlives the aggregator. `buffers`
  // gives the memory of the sums, because a root is sent on.
  explicit Aggregator(size_t float_count, const ShardCodec* codec = nullptr,
                      const BufferSource& buffers = {})
      : pool_(float_count, buffers), float_count_(float_count), codec_(codec) {}

  // Forgets everything and waits for the contributions of a step with this tree.
  void Begin(const MicroBatchTree& tree) {
    tree_ = tree;
    sums_.clear();
    right_half_.reset();
  }

  // REQUIRES: IsCanonical(node) in the tree; the payload has the size in which the shard is sent.
  // Returns false and drops it if the node, or an ancestor, is already held: it has the same bits.
  bool Add(TreeNode node, const Blob& payload);

  bool is_complete() const { return sums_.contains(MicroBatchTree::kRoot); }
  // Makes the last addition and returns the unscaled sum over all samples of the step. REQUIRES:
  // is_complete(). A copy of the blob keeps the bytes after the step, for repeats (P8, P22).
  const Blob& root();
  // The root, or two halves whose sum it is: for a caller that reads it once, block by block, and
  // does not send it.
  struct Halves {
    Blob left;
    Blob right;  // empty if `left` is the root
  };
  Halves root_halves() const;  // REQUIRES: is_complete()
  // The nodes that are held, ascending, for an Answer (P17). A partial sum counts as its node.
  std::vector<TreeNode> held_nodes() const;
  const MicroBatchTree& tree() const { return tree_; }

 private:
  struct Sum {
    Blob values;       // the contribution as received, or a view of `own`
    SharedBuffer own;  // set once this is a sum of ours, into which we may add
  };
  bool HoldsAncestorOrSelf(TreeNode node) const;
  void DropDescendants(TreeNode node) {
    std::erase_if(sums_, [&](const auto& held) { return tree_.IsAncestor(node, held.first); });
  }
  Sum Merge(const Sum& left, const Sum& right);
  Sum Decoded(TreeNode* node, const Blob& payload);

  BufferPool pool_;
  size_t float_count_;
  const ShardCodec* codec_;
  MicroBatchTree tree_{{}};
  std::map<TreeNode, Sum> sums_;
  std::optional<Sum>
      right_half_;  // the root's right half; its left half is in sums_ until root() is called
};

}  // namespace pando
