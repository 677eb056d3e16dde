#include "worker/unreplied_gradients.h"

#include <algorithm>
#include <utility>

#include "common/mutation.h"
#include "worker/shard_answers.h"

namespace pando {

size_t UnrepliedGradients::count() const {
  size_t count = 0;
  for (const auto& gradients : shards_) count += gradients.size();
  return count;
}

bool UnrepliedGradients::HasUnsent() const {
  return std::ranges::any_of(shards_, [](const auto& gradients) {
    return std::ranges::any_of(gradients, &UnrepliedGradient::is_unsent);
  });
}

bool UnrepliedGradients::HasPushed(ShardId id) const {
  return std::ranges::any_of(shard(id), &UnrepliedGradient::is_pushed);
}

bool UnrepliedGradients::HasGiven(ShardId id) const {
  return std::ranges::any_of(shard(id), &UnrepliedGradient::is_given);
}

bool UnrepliedGradients::AsksFor(ShardId id, Version version) const {
  return std::ranges::any_of(shard(id), [&](const UnrepliedGradient& gradient) {
    return VersionMadeBy(gradient.step) == version;
  });
}

size_t UnrepliedGradients::given_bytes() const {
  size_t bytes = 0;
  for (const auto& gradients : shards_) {
    for (const UnrepliedGradient& gradient : gradients)
      bytes += gradient.is_given() ? gradient.payload.size_bytes() : 0;
  }
  return bytes;
}

void UnrepliedGradients::Add(ShardId id, UnrepliedGradient gradient) {
  shards_[id.value()].push_back(std::move(gradient));
}

void UnrepliedGradients::OnCommitted(ShardId id, Version version) {
  std::erase_if(shards_[id.value()], [&](const UnrepliedGradient& gradient) {
    return VersionMadeBy(gradient.step) <= version;
  });
}

void UnrepliedGradients::DropFrom(Step step) {
  for (auto& gradients : shards_)
    std::erase_if(gradients, [&](const auto& gradient) { return gradient.step >= step; });
}

void UnrepliedGradients::Clear() {
  for (auto& gradients : shards_) gradients.clear();
}

// ---- delivery ----------------------------------------------------------------------------------

void UnrepliedGradients::MarkSent(ShardId id, size_t index, Delivery delivery) {
  shards_[id.value()][index].delivery = delivery;
}

void UnrepliedGradients::MarkHeld(ShardId id, TreeNode node, Version version) {
  for (UnrepliedGradient& gradient : shards_[id.value()]) {
    if (gradient.node == node && VersionMadeBy(gradient.step) == version) gradient.is_held = true;
  }
}

void UnrepliedGradients::EnterView() {
  for (auto& gradients : shards_) {
    for (UnrepliedGradient& gradient : gradients) {
      if (gradient.is_given() && Mutated(Mutation::kGiveOnce)) continue;
      gradient.delivery = Delivery::kUnsent;
      gradient.is_held = false;
    }
  }
}

void UnrepliedGradients::TakeBackGiven() {
  if (Mutated(Mutation::kGiveOnce)) return;
  for (auto& gradients : shards_) {
    for (UnrepliedGradient& gradient : gradients) {
      if (gradient.is_given()) gradient.delivery = Delivery::kUnsent;
    }
  }
}

bool UnrepliedGradients::JudgePushed(const AnswerItem& item) {
  bool is_any_held = false;
  for (UnrepliedGradient& gradient : shards_[item.shard.value()]) {
    if (!gradient.is_pushed()) continue;
    // A lane that was promoted may hold it, and not know that the version it reads is committed.
    const bool is_judged = VersionReadBy(gradient.step) <= item.version;
    if (gradient.is_held && !is_judged) continue;
    const MicroBatchTree tree = steps_.Tree(gradient.step);
    gradient.is_held = IsHeld(item, gradient.step, gradient.node, tree);
    if (!gradient.is_held) gradient.delivery = Delivery::kUnsent;
    is_any_held |= gradient.is_held;
  }
  return is_any_held;
}

void UnrepliedGradients::JudgeGiven(const AnswerItem& item) {
  for (UnrepliedGradient& gradient : shards_[item.shard.value()]) {
    const bool is_held = StepReading(item.version) == gradient.step &&
                         std::ranges::find(item.nodes, gradient.node) != item.nodes.end();
    if (gradient.is_given() && !is_held) gradient.delivery = Delivery::kUnsent;
  }
}

// ---- sums --------------------------------------------------------------------------------------

bool UnrepliedGradients::Contains(ShardId id, Step step, TreeNode node) const {
  const MicroBatchTree tree = steps_.Tree(step);
  return std::ranges::any_of(shard(id), [&](const UnrepliedGradient& other) {
    return other.step == step && (other.node == node || tree.IsAncestor(other.node, node));
  });
}

std::optional<Blob> UnrepliedGradients::TakeUnsent(ShardId id, Step step, TreeNode node) {
  auto& gradients = shards_[id.value()];
  const auto it = std::ranges::find_if(gradients, [&](const UnrepliedGradient& other) {
    return other.step == step && other.node == node && other.is_unsent();
  });
  if (it == gradients.end()) return std::nullopt;
  Blob payload = std::move(it->payload);
  gradients.erase(it);
  return payload;
}

void UnrepliedGradients::DropUnsentBelow(ShardId id, Step step, TreeNode node) {
  const MicroBatchTree tree = steps_.Tree(step);
  std::erase_if(shards_[id.value()], [&](const UnrepliedGradient& other) {
    return other.step == step && other.is_unsent() && tree.IsAncestor(node, other.node);
  });
}

}  // namespace pando
