// UnrepliedGradients: this worker's gradients that their shards have not answered for (P11), and,
// on a host's relay, those of the host's other workers that it sums (P6a). A gradient stays here
// until the version that it helps to make is committed. Threads: none. Owns: one step's gradients
// (I6).
#pragma once

#include <optional>
#include <vector>

#include "common/blob.h"
#include "common/ids.h"
#include "plan/step_plan.h"
#include "proto/messages.h"

namespace pando {

enum class Delivery : uint8_t { kUnsent, kPushed, kGiven };  // to its lane; to the host's relay

struct UnrepliedGradient {
  Step step;
  TreeNode node;
  Blob payload;
  Delivery delivery = Delivery::kUnsent;
  bool is_held = false;  // the lane said so: it has this very contribution

  bool is_unsent() const { return delivery == Delivery::kUnsent; }
  bool is_pushed() const { return delivery == Delivery::kPushed; }
  bool is_given() const { return delivery == Delivery::kGiven; }
};

class UnrepliedGradients {
 public:
  // `steps` outlives it.
  UnrepliedGradients(const StepPlan& steps, size_t shard_count)
      : steps_(steps), shards_(shard_count) {}

  const std::vector<UnrepliedGradient>& shard(ShardId shard) const {
    return shards_[shard.value()];
  }
  size_t count() const;
  bool HasUnsent() const;
  bool HasPushed(ShardId shard) const;
  bool HasGiven(ShardId shard) const;
  // Whether a push of ours asks for this version, now or later.
  bool AsksFor(ShardId shard, Version version) const;
  size_t given_bytes() const;

  void Add(ShardId shard, UnrepliedGradient gradient);
  void OnCommitted(ShardId shard, Version version);
  // Steps from this one on were abandoned.
  void DropFrom(Step step);
  void Clear();

  // ---- delivery --------------------------------------------------------------------------------
  void MarkSent(ShardId shard, size_t index, Delivery delivery);
  // The lane holds it: the answer to a push was Pending.
  void MarkHeld(ShardId shard, TreeNode node, Version version);
  // Another lane may be the primary now: all is sent again.
  void EnterView();
  // The relay was given up: what it was given goes to the lanes.
  void TakeBackGiven();
  // What a lane that was asked does not hold was lost, and is sent again (P10). True if it holds
  // any.
  bool JudgePushed(const AnswerItem& item);
  // The same of the relay. Every gradient that it was given and does not hold is given again.
  void JudgeGiven(const AnswerItem& item);

  // ---- sums ------------------------------------------------------------------------------------
  // Whether a gradient here is of this node, or contains it.
  bool Contains(ShardId shard, Step step, TreeNode node) const;
  // Takes the payload of an unsent gradient out.
  std::optional<Blob> TakeUnsent(ShardId shard, Step step, TreeNode node);
  // Drops the unsent gradients that this node contains.
  void DropUnsentBelow(ShardId shard, Step step, TreeNode node);

 private:
  const StepPlan& steps_;
  std::vector<std::vector<UnrepliedGradient>> shards_;
};

}  // namespace pando
