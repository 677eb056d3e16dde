// TreeSum adds the micro-batch gradients of one Compute call along the micro-batch tree (P2, P3),
// shard by shard as backward makes them final, and emits each sum the moment it is complete. So
// gradients leave while backward still runs. Called by train_step.
// Threads: any. Owns: partial sums until their sibling is there. Invariant I5: additions follow the
// tree, left + right, whoever arrives first.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "common/blob.h"
#include "common/float_buffer.h"
#include "common/ids.h"
#include "common/tensor_layout.h"
#include "common/tree.h"

namespace pando {

class TreeSum {
 public:
  // Called on the thread that completed the sum.
  using Emit = std::function<void(TreeNode node, ShardId shard, Blob sum)>;

  // Sums the nodes of tree.Cover(assigned). REQUIRES: assigned ascending; `shards` outlives this.
  TreeSum(const MicroBatchTree& tree, const std::vector<MicroBatch>& assigned,
          const ShardPlan& shards, Emit emit);

  // These shards of m's flat gradient vector are final. The vector is added into, or added to
  // another's, from now on: only the shards not yet given remain the caller's to write.
  // REQUIRES: m is assigned and present; each (m, shard) once.
  void Add(MicroBatch m, ShardPlan::Run shards, const SharedBuffer& gradients);

 private:
  void AddShard(MicroBatch m, ShardId shard, SharedBuffer sum);
  // The sibling's sum if it is here; otherwise keeps `sum` for the sibling to find.
  std::optional<SharedBuffer> MeetSibling(TreeNode parent, ShardId shard, const SharedBuffer& sum);

  const MicroBatchTree tree_;
  const ShardPlan& shards_;
  const Emit emit_;
  std::vector<bool> is_emitted_;  // by tree node: one of the cover

  std::mutex mutex_;                   // guards waiting_
  std::vector<SharedBuffer> waiting_;  // [parent node, shard]: the child's sum that came first
};

}  // namespace pando
