// TreeSum adds the micro-batch gradients of one Compute call along the micro-batch tree (P2, P3),
// shard by shard as backward makes them final, and emits each sum the moment it is complete. So
// gradients leave while backward still runs. Called by train_step.
// Threads: any; with a GPU one, which launches the additions. Owns: partial sums until their
// sibling is there, at most one more of each shard than the tree is high where one thread computes
// leaf after leaf. Invariant I5: additions follow the tree, left + right, whoever arrives first.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "common/float_buffer.h"
#include "common/ids.h"
#include "common/tensor_layout.h"
#include "common/tree.h"
#include "kernels/device.h"

namespace pando {

class TreeSum {
 public:
  // The sum of one shard is complete: its floats of the flat vector are final, on a GPU once what
  // has been launched is done.
  using Emit = std::function<void(TreeNode node, ShardId shard, const SharedBuffer& sum)>;

  // Sums these nodes.  REQUIRES: they are canonical and none lies under another; `shards` outlives
  // this.
  TreeSum(const MicroBatchTree& tree, const std::vector<TreeNode>& nodes, const ShardPlan& shards,
          Device device = {});

  // These shards of m's flat gradient vector, in the device's memory, are final. The vector is
  // added into, or added to another's, from now on: only the shards not yet given remain the
  // caller's to write. `emit` is called before it returns, for each sum that became complete.
  // REQUIRES: m is present under one of the nodes; each (m, shard) once.
  void Add(MicroBatch m, ShardPlan::Run shards, const SharedBuffer& gradients, const Emit& emit);

 private:
  void AddShard(MicroBatch m, ShardId shard, SharedBuffer sum, const Emit& emit);
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
