// UnrepliedGradients holds this worker's gradients, sent or not, until the versions that they help
// to make are committed (P11). On a relay it also holds the sums with the gradients of its host's
// or rack's other workers (P6a). Owns: the gradients of the steps that may be
// sent at a time (I6). Threads: none.
#pragma once

#include <algorithm>
#include <optional>
#include <ranges>
#include <utility>
#include <vector>

#include "common/blob.h"
#include "common/ids.h"
#include "plan/step_plan.h"
#include "worker/shard_answers.h"

namespace pando {

// kPushed: sent to the shard's lane. kGiven: sent to a relay.
enum class Delivery : uint8_t { kUnsent, kPushed, kGiven };

struct UnrepliedGradient {
  Step step;
  TreeNode node;
  Blob payload;
  Delivery delivery = Delivery::kUnsent;
  bool is_held = false;  // the lane said that it has this contribution

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
  size_t count() const {
    return static_cast<size_t>(std::ranges::distance(shards_ | std::views::join));
  }
  // Returns whether a gradient of this step waits to be sent.
  bool HasUnsent(ShardId id, Step step) const {
    return std::ranges::any_of(shard(id), [&](const UnrepliedGradient& gradient) {
      return gradient.is_unsent() && gradient.step == step;
    });
  }
  bool HasUnsentBefore(ShardId id, Step step) const {
    return std::ranges::any_of(shard(id), [&](const UnrepliedGradient& gradient) {
      return gradient.is_unsent() && gradient.step < step;
    });
  }
  bool HasPushed(ShardId id) const {
    return std::ranges::any_of(shard(id), &UnrepliedGradient::is_pushed);
  }
  bool HasGiven(ShardId id) const {
    return std::ranges::any_of(shard(id), &UnrepliedGradient::is_given);
  }
  // Returns whether a push of ours asks for this version, now or later.
  bool AsksFor(ShardId id, Version version) const {
    return std::ranges::any_of(shard(id), [&](const UnrepliedGradient& gradient) {
      return VersionMadeBy(gradient.step) == version;
    });
  }
  size_t GivenBytes(const std::vector<ShardId>& ids) const {
    size_t bytes = 0;
    for (const ShardId id : ids) {
      for (const UnrepliedGradient& gradient : shard(id))
        bytes += gradient.is_given() ? gradient.payload.size_bytes() : 0;
    }
    return bytes;
  }

  void Add(ShardId id, UnrepliedGradient gradient) {
    if (gradient.is_unsent()) unsent_.push_back(id);
    shards_[id.value()].push_back(std::move(gradient));
  }
  void OnCommitted(ShardId id, Version version) {
    std::erase_if(shards_[id.value()], [&](const UnrepliedGradient& gradient) {
      return VersionMadeBy(gradient.step) <= version;
    });
  }
  // Drops the gradients of abandoned steps, from this one on.
  void DropFrom(Step step) {
    for (auto& gradients : shards_)
      std::erase_if(gradients, [&](const auto& gradient) { return gradient.step >= step; });
  }
  void Clear() {
    shards_.assign(shards_.size(), {});
    unsent_.clear();
  }

  // ---- delivery --------------------------------------------------------------------------------
  void MarkSent(ShardId id, size_t index, Delivery delivery) {
    shards_[id.value()][index].delivery = delivery;
  }
  // Notes that the lane holds the gradient: the answer to its push was Pending.
  void MarkHeld(ShardId id, TreeNode node, Version version) {
    for (UnrepliedGradient& gradient : shards_[id.value()]) {
      if (gradient.node == node && VersionMadeBy(gradient.step) == version) gradient.is_held = true;
    }
  }
  // Marks all gradients as unsent, because another lane may be the primary now.
  void EnterView();
  // Marks given gradients of these shards as unsent. Their relay was given up, so they go to the
  // lanes.
  void TakeBackGiven(const std::vector<ShardId>& ids);
  // Marks gradients that the lane, according to its answer, does not hold as unsent: they were lost
  // (P10). Returns whether it holds any.
  bool JudgePushed(const AnswerItem& item) {
    bool is_any_held = false;
    for (UnrepliedGradient& gradient : shards_[item.shard.value()]) {
      if (!gradient.is_pushed()) continue;
      // A lane that was promoted may hold it, and not know that the version it reads is committed.
      const bool is_judged = gradient.step <= steps_.LastStepToSend(item.version);
      if (gradient.is_held && !is_judged) continue;
      const MicroBatchTree tree = steps_.Tree(gradient.step);
      const std::vector<TreeNode>* nodes = NodesNamed(item, gradient.step, steps_);
      gradient.is_held = nodes != nullptr && AreHeld(*nodes, tree.Range(gradient.node), tree);
      if (!gradient.is_held) MakeUnsent(item.shard, gradient);
      is_any_held |= gradient.is_held;
    }
    return is_any_held;
  }
  // Does the same for the relay: marks given gradients that it does not hold as unsent.
  void JudgeGiven(const AnswerItem& item) {
    for (UnrepliedGradient& gradient : shards_[item.shard.value()]) {
      const std::vector<TreeNode>* nodes = NodesNamed(item, gradient.step, steps_);
      const bool is_held =
          nodes != nullptr && std::ranges::find(*nodes, gradient.node) != nodes->end();
      if (gradient.is_given() && !is_held) MakeUnsent(item.shard, gradient);
    }
  }
  // Returns the shards in which gradients have become unsent since the last call, except by
  // EnterView and TakeBackGiven. They may be named twice, and may have none any more.
  std::vector<ShardId> TakeUnsentShards() { return std::exchange(unsent_, {}); }

  // ---- sums ------------------------------------------------------------------------------------
  // Returns whether a gradient here is the sum of this node, or of a node above it.
  bool Contains(ShardId id, Step step, TreeNode node) const {
    const MicroBatchTree tree = steps_.Tree(step);
    return std::ranges::any_of(shard(id), [&](const UnrepliedGradient& other) {
      return other.step == step && (other.node == node || tree.IsAncestor(other.node, node));
    });
  }
  // Removes an unsent gradient, and returns its payload.
  std::optional<Blob> TakeUnsent(ShardId id, Step step, TreeNode node) {
    auto& gradients = shards_[id.value()];
    const auto it = std::ranges::find_if(gradients, [&](const UnrepliedGradient& other) {
      return other.step == step && other.node == node && other.is_unsent();
    });
    if (it == gradients.end()) return std::nullopt;
    Blob payload = std::move(it->payload);
    gradients.erase(it);
    return payload;
  }
  // Drops the unsent gradients of nodes below this one.
  void DropUnsentBelow(ShardId id, Step step, TreeNode node) {
    const MicroBatchTree tree = steps_.Tree(step);
    std::erase_if(shards_[id.value()], [&](const UnrepliedGradient& other) {
      return other.step == step && other.is_unsent() && tree.IsAncestor(node, other.node);
    });
  }

 private:
  void MakeUnsent(ShardId id, UnrepliedGradient& gradient) {
    gradient.delivery = Delivery::kUnsent;
    unsent_.push_back(id);
  }

  const StepPlan& steps_;
  std::vector<std::vector<UnrepliedGradient>> shards_;
  std::vector<ShardId> unsent_;  // of which TakeUnsentShards tells
};

}  // namespace pando
