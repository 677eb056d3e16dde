// SumRelay sums the gradients of its host's or its rack's workers (P6a): one copy of a gradient
// leaves the place, however many workers are there. The others give it their sums (sum_giver.h). It
// adds siblings along the tree, pushes the result, and sends them the parameters that its pushes
// bring back. Threads: none. Invariants I1, I5.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/buffer_pool.h"
#include "proto/assignment.h"
#include "worker/session_part.h"

namespace pando {

class SumRelay : SessionPart {
 public:
  // Gifts of one giver for one shard. All nodes of the trees of as many steps as it may have here
  // are fewer per micro-batch.
  static constexpr size_t kGiftsPerMicroBatchMax = 2 * (kStalenessMax + 2);
  using Replies = std::map<PeerId, Params>;

  // `buffers` make the sums, which are sent on. The references outlive it.
  SumRelay(const SessionPart& part, BufferSource buffers)
      : SessionPart(part), buffers_(std::move(buffers)), shards_(plan_.shards.shard_count()) {}

  void EnterView(const SumGroup& group);
  // Gifts of an earlier generation are dropped (P21).
  void Forget() {
    for (ShardState& shard : shards_) shard.gifts.clear();
  }
  // Returns whether this worker sums gradients of this shard for others.
  bool Sums(ShardId shard) const { return group_.IsRelay(shard, member_.self()); }

  // A push of another worker of our group. It proves that the version which its gradients were made
  // with is committed everywhere (P4). A late push is not answered; its giver asks. Returns false
  // if this worker takes no pushes.
  bool OnPush(const PeerId& from, const Push& push);
  // Answers as a lane does, but only for shards that this worker sums, and names only the sums that
  // the asker gave.
  void OnQuestion(const PeerId& from, const Question& question);
  void OnCommitted(ShardId shard, Version version);
  // Adds the parameters that have arrived to the replies for their givers.
  void OnParams(const ParamsItem& item, Replies* replies);
  // Work of ours was abandoned, and with it sums that contain the gifts of others.
  void RestoreGifts();
  // Adds a gradient of ours to those that wait for their siblings.
  void Add(ShardId shard, UnrepliedGradient gradient);

  // Returns when the sum may be pushed: `now`, or later if it waits for sums of the group's others.
  // It waits at most `patience` after the first call for the shard's step, and only for workers
  // that gave for the step before, or for this step before the relay first asked.
  Micros LeavesAt(Micros now, ShardId shard, const UnrepliedGradient& sum, Micros patience);

 private:
  struct Gift {
    PeerId giver;
    Step step;
    TreeNode node;
    Blob payload;  // empty once the step is committed; the giver still waits for the version
  };
  struct ShardState {
    std::vector<Gift> gifts;
    // When the waiting sum of this step leaves, even without the others' part; kNever: none waits.
    Step waiting_step;
    Micros leaves_at = kNever;
    std::optional<BufferPool> pool;  // of sums
  };
  bool IsSound(const PushItem& item) const;
  bool Keep(ShardId shard, Gift gift);
  Blob Sum(ShardId shard, const Blob& left, const Blob& right);
  bool WaitsForOthers(Step step, TreeNode node);

  const BufferSource buffers_;
  SumGroup group_;
  std::map<NodeId, Step> last_gave_;  // by giver, in this view
  std::optional<Step> nodes_step_;
  std::vector<TreeNode> nodes_;  // of the givers and ours, at that step
  std::vector<ShardState> shards_;
};

}  // namespace pando
