// TreeSum adds the micro-batch gradients of one Compute call along the micro-batch tree (P2, P3),
// shard by shard as backward makes them final, and hands over each sum as soon as it is complete.
// So gradients leave while backward still runs. Called by MicroBatchPass.
// Threads: any; with a GPU one, which launches the additions. Owns: partial sums until their
// sibling arrives. If one thread computes leaf after leaf, that is at most the tree's height plus
// one of each shard. Invariant I5: additions are left + right along the tree, in any order of
// arrival.
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

// Takes complete sums. TreeSum gives a sum to the launcher (which encodes a GPU's sums there and
// copies them to the host), the launcher to MicroBatchPass (which encodes what is not encoded yet),
// and that to CallPort (trainer.cc).
// Threads: called on the computing thread.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // The sum over `node`'s samples of one shard is final and keeps its memory until `sum` is gone.
  virtual void OnGradient(TreeNode node, ShardId shard, Blob sum) = 0;
};

class TreeSum {
 public:
  // Sums these nodes.  REQUIRES: they are canonical and none lies under another; `shards` outlives
  // this.
  TreeSum(const MicroBatchTree& tree, const std::vector<TreeNode>& nodes, const ShardPlan& shards,
          Device device = {});

  // These shards of m's flat gradient vector, in the device's memory, are final. They belong to the
  // sum from now on; the caller may write only the shards that it has not given yet. `sink` gets
  // each sum that became complete, before this returns. On a GPU the sum's floats are final once
  // everything launched so far is done.
  // REQUIRES: m is present under one of the nodes; each (m, shard) once.
  void Add(MicroBatch m, ShardPlan::Run shards, const SharedBuffer& gradients, GradientSink& sink);

 private:
  void AddShard(MicroBatch m, ShardId shard, SharedBuffer sum, GradientSink& sink);
  // The sibling's sum if it is here; otherwise keeps `sum` for the sibling to find.
  std::optional<SharedBuffer> MeetSibling(TreeNode parent, ShardId shard, const SharedBuffer& sum);

  const MicroBatchTree tree_;
  const ShardPlan& shards_;
  const Device device_;
  std::vector<bool> is_emitted_;  // by tree node: one of ours

  std::mutex mutex_;                   // guards waiting_
  std::vector<SharedBuffer> waiting_;  // [parent node, shard]: the child's sum that came first
};

}  // namespace pando
