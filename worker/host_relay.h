// HostRelay: one copy of a gradient leaves a host however many workers compute on it (P6a). One of
// the host's workers is the relay. The others give it their sums instead of pushing them; it adds
// what belongs together along the tree, pushes that, and hands them the parameters that its pushes
// bring back. Used by the session. Threads: none. Invariants I1, I5: sums follow the tree.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "common/float_buffer.h"
#include "plan/job_plan.h"
#include "proto/host_group.h"
#include "proto/view_member.h"
#include "worker/committed_versions.h"
#include "worker/unreplied_gradients.h"

namespace pando {

class HostRelay {
 public:
  // Of a giver and shard: all nodes of two steps' trees are fewer for each micro-batch.
  static constexpr size_t kGiftsPerMicroBatchMax = 4;
  using Replies = std::map<PeerId, Params>;

  // `buffers`: of sums, which travel on. All else outlives it.
  HostRelay(const JobPlan& plan, BufferSource buffers, ViewMember& member,
            CommittedVersions& versions, UnrepliedGradients& gradients);

  void EnterView(const HostGroup& group);
  // Of another generation nothing is kept (P21).
  void Forget();
  // Whether this worker sums gradients of this shard for its host.
  bool Sums(ShardId shard) const { return is_relay_ && group_.sums[shard.value()]; }

  // From another worker of our host. That it could be sent proves that the version which it was
  // made with is committed everywhere (P4). Late ones are not answered; their giver asks. False if
  // this worker takes none: while nothing of ours may be pushed, no giver should rely on us.
  bool OnPush(const PeerId& from, const Push& push);
  // A lane would say what it holds; the relay says what it holds of what the asker gave.
  void OnQuestion(const PeerId& from, const Question& question);
  void OnCommitted(ShardId shard, Version version);
  // Adds what to hand to the givers of parameters that have come.
  void OnParams(const ParamsItem& item, Replies* replies);
  // Work of ours was abandoned, and with it sums that others had a part in.
  void RestoreGifts();
  // Adds a gradient of ours to those that wait for their siblings.
  void Add(ShardId shard, UnrepliedGradient gradient);

  // One look at what is to be pushed: BeginLook, and for each sum MayLeave: whether it may go, or
  // waits for others of the host, until `patience` after the first look at the shard's step. A
  // worker is not waited for if it gave nothing of the step before, nor of this one by the first
  // look.
  void BeginLook() { look_again_at_ = kNever; }
  bool MayLeave(Micros now, ShardId shard, const UnrepliedGradient& sum, Micros patience);
  // When something that waits may go.
  Micros NextDeadline() const { return look_again_at_; }

 private:
  struct Gift {
    PeerId giver;
    Step step;
    TreeNode node;
    Blob payload;  // gone once the step's version is there, for which the giver waits still
  };
  struct ShardState {
    std::vector<Gift> gifts;
    Micros leaves_at = kNever;       // without the others' part; kNever: nothing has waited
    std::optional<BufferPool> pool;  // of sums
  };
  bool MaySum() const { return plan_.may_sum_on_host(); }
  bool IsSound(const PushItem& item) const;
  bool Keep(ShardId shard, Gift gift);
  Blob Sum(ShardId shard, const Blob& left, const Blob& right);
  bool WaitsForOthers(Step step, TreeNode node);

  const JobPlan& plan_;
  const BufferSource buffers_;
  ViewMember& member_;
  CommittedVersions& versions_;
  UnrepliedGradients& gradients_;
  HostGroup group_;
  bool is_relay_ = false;
  View view_;                         // where we are the relay
  std::map<NodeId, Step> last_gave_;  // by giver, in this view
  std::optional<Step> nodes_step_;
  std::vector<TreeNode> nodes_;  // of the givers and ours, at that step
  std::vector<ShardState> shards_;
  Micros look_again_at_ = kNever;
};

}  // namespace pando
