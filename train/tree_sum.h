// TreeSum adds the micro-batch gradients of one Compute call along the micro-batch tree (P2, P3),
// shard by shard as soon as backward writes them no more, and returns each sum as soon as it is
// complete. So gradients leave while backward still runs. MicroBatchPass calls it, and embed/ does
// for a program. Threads: any; with a GPU only the one that launches the additions. Owns: partial
// sums until their siblings arrive. If one thread computes leaf after leaf, each shard has at most
// one sum more than the tree is high. Invariant I5: additions are left + right along the tree, in
// any order of arrival.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "common/blob.h"
#include "common/float_buffer.h"
#include "common/ids.h"
#include "kernels/device.h"
#include "plan/micro_batch_tree.h"
#include "plan/shard_plan.h"

namespace pando {

// The sum of one shard over a node's samples. Its memory is kept until `payload` is gone.
struct CompleteSum {
  TreeNode node;
  ShardId shard;
  Blob payload;
};

class TreeSum {
 public:
  // Sums these nodes.  REQUIRES: they are canonical and none lies under another; `shards` outlives
  // this.
  TreeSum(const MicroBatchTree& tree, const std::vector<TreeNode>& nodes, const ShardPlan& shards,
          Device device = {});

  // Takes one final shard of `sum`, m's flat gradient vector in the device's memory. The tree sum
  // owns that shard from now on; the caller may write only the shards that it has not given yet.
  // Returns the sum that the shard completes, if it completes one. On a GPU the sum's floats are
  // final once everything launched so far is done.
  //
  // REQUIRES: m is present under one of the nodes; each (m, shard) once.
  std::optional<CompleteSum> Add(MicroBatch m, ShardId shard, SharedBuffer sum);

 private:
  // Returns the sibling's sum if it is here. Otherwise keeps `sum` for the sibling; returns null.
  SharedBuffer MeetSibling(TreeNode parent, ShardId shard, const SharedBuffer& sum);

  const MicroBatchTree tree_;
  const ShardPlan& shards_;
  const Device device_;
  std::vector<bool> is_emitted_;  // by tree node: one of ours

  std::mutex mutex_;                   // guards waiting_
  std::vector<SharedBuffer> waiting_;  // [parent node, shard]: the child's sum that came first
};

}  // namespace pando
