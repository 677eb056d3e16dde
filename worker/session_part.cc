
#include "worker/session_part.h"

namespace pando {

// ---- delivery ----------------------------------------------------------------------------------

void UnrepliedGradients::EnterView() {
  for (UnrepliedGradient& gradient : shards_ | std::views::join) {
    if (gradient.is_given() && Mutated(Mutation::kGiveOnce)) continue;
    gradient.delivery = Delivery::kUnsent;
    gradient.is_held = false;
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
    gradient.is_held =
        StepReading(item.version) == gradient.step && IsHeld(item, tree.Range(gradient.node), tree);
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

}  // namespace pando
