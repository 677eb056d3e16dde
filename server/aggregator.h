// Aggregator sums one shard's gradients of one step over the fixed micro-batch tree, so the result
// depends neither on the senders nor on the arrival order (P2, P3). Shard calls it. Threads: none.
// Owns: its partial sums. Contributions are summed from the received frames. Invariant I1.
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
  // `codec` decodes contributions and outlives the aggregator; null: they are floats. `buffers`
  // supplies the sums' memory, because roots are sent to backups.
  explicit Aggregator(size_t float_count, const ShardCodec* codec = nullptr,
                      const BufferSource& buffers = {})
      : pool_(float_count, buffers), float_count_(float_count), codec_(codec) {}

  // Forgets everything and waits for the contributions of a step with this tree.
  void Begin(const MicroBatchTree& tree) {
    tree_ = tree;
    sums_.clear();
    right_half_.reset();
  }

  // Adds a contribution.  Returns false and drops it if the node or an ancestor, which has the same
  // bits, is held.  REQUIRES: IsCanonical(node) in the tree; the payload has the shard's size.
  bool Add(TreeNode node, const Blob& payload);

  bool is_complete() const { return sums_.contains(MicroBatchTree::kRoot); }
  // Makes the last addition and returns the unscaled sum over all samples of the step. REQUIRES:
  // is_complete(). A copy of the blob keeps the bytes after the step, for repeats (P8, P22).
  const Blob& FinishRoot();
  // Halves are the root, or the two sums that add up to it, for a caller that reads the root once,
  // block by block, and does not send it.
  struct Halves {
    Blob left;
    Blob right;  // empty if `left` is the root
  };
  Halves root_halves() const;  // REQUIRES: is_complete()
  // Returns the held nodes, ascending, for an Answer (P17). A partial sum counts as its node.
  std::vector<TreeNode> held_nodes() const;
  const MicroBatchTree& tree() const { return tree_; }

 private:
  struct Sum {
    Blob values;       // the contribution as received, or the bytes of `own`
    SharedBuffer own;  // set if the aggregator made this sum and may add into it
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
  // The root's right half, until FinishRoot adds it. The left half is in sums_.
  std::optional<Sum> right_half_;
};

}  // namespace pando
