// The state that the parts of a session share: gradients without an answer, committed versions, and
// what the primaries hold. SessionPart gives every part references to it. Threads: none.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <ranges>
#include <utility>
#include <vector>

#include "common/blob.h"
#include "common/ids.h"
#include "plan/job_plan.h"
#include "plan/step_plan.h"
#include "proto/messages.h"
#include "proto/view_member.h"
#include "train/compute_port.h"

namespace pando {

// The session, as its parts call it. It acts at once.
class SessionListener {
 public:
  virtual ~SessionListener() = default;
  virtual void OnCommitted(ShardId shard, Version version) = 0;
  // The step is handed to compute: its parameters are needed.
  virtual void OnStepBegun(Step step) = 0;
  // The sums that compute made of these steps do not count. They may be computed again.
  virtual void OnStepsAbandoned(Step from) = 0;
};

// The newest version of each shard that is known to be committed. Many messages carry it.
class CommittedVersions {
 public:
  // `listener` outlives it.
  CommittedVersions(size_t shard_count, SessionListener& listener)
      : listener_(listener), known_(shard_count) {}

  size_t shard_count() const { return known_.size(); }
  bool HasShard(ShardId shard) const { return shard.value() < known_.size(); }
  Version known(ShardId shard) const { return known_[shard.value()]; }
  // The version that every shard has.
  Version everywhere() const { return known_[lowest_shard().value()]; }
  Step lowest_incomplete() const { return StepReading(everywhere()); }
  // The first of the shards that are furthest behind.
  ShardId lowest_shard() const {
    return ShardId(static_cast<uint32_t>(std::ranges::min_element(known_) - known_.begin()));
  }

  void Learn(ShardId shard, Version version) {
    Version& known = known_[shard.value()];
    if (version <= known) return;
    known = version;
    listener_.OnCommitted(shard, version);
  }
  // Every shard has this version or a newer one.
  void LearnAll(Version version) {
    for (uint32_t s = 0; s < known_.size(); ++s) Learn(ShardId(s), version);
  }
  void Forget() { std::ranges::fill(known_, Version(0)); }

 private:
  SessionListener& listener_;
  std::vector<Version> known_;  // by shard
};

// Whether the shard has all of these micro-batches of the step that reads the version it answered
// with.
inline bool IsHeld(const AnswerItem& item, MicroBatchRange wanted, const MicroBatchTree& tree) {
  return std::ranges::any_of(item.nodes, [&](TreeNode node) {
    if (node.value() < 1 || node.value() >= tree.node_bound()) return false;
    const MicroBatchRange held = tree.Range(node);
    return held.first <= wanted.first && wanted.last <= held.last;
  });
}

// The primaries' answers in one view: what they hold of each shard (P17).
class ShardAnswers {
 public:
  void Clear() { items_.clear(); }
  void Add(const AnswerItem& item) { items_.insert_or_assign(item.shard, item); }
  size_t size() const { return items_.size(); }
  const std::map<ShardId, AnswerItem>& items() const { return items_; }

  // Some shard has this version and lacks the micro-batch's part of the next one.
  bool IsMissing(MicroBatch m, Version version, const MicroBatchTree& tree) const {
    return std::ranges::any_of(items_, [&](const auto& answer) {
      return answer.second.version == version &&
             !IsHeld(answer.second, {m.value(), m.value() + 1}, tree);
    });
  }
  // Some shard answered with an older version.
  bool IsBehind(Version version) const {
    return std::ranges::any_of(items_,
                               [&](const auto& answer) { return answer.second.version < version; });
  }

 private:
  std::map<ShardId, AnswerItem> items_;
};

// UnrepliedGradients holds this worker's gradients that have no answer yet (P11), and, on a host's
// relay, those of the host's other workers that it sums (P6a). A gradient stays here until the
// version that it helps to make is committed. Owns: one step's gradients (I6).

enum class Delivery : uint8_t { kUnsent, kPushed, kGiven };  // to its lane; to the host's relay

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
  bool HasUnsent() const {
    return std::ranges::any_of(shards_ | std::views::join, &UnrepliedGradient::is_unsent);
  }
  bool HasPushed(ShardId id) const {
    return std::ranges::any_of(shard(id), &UnrepliedGradient::is_pushed);
  }
  bool HasGiven(ShardId id) const {
    return std::ranges::any_of(shard(id), &UnrepliedGradient::is_given);
  }
  // Whether a push of ours asks for this version, now or later.
  bool AsksFor(ShardId id, Version version) const {
    return std::ranges::any_of(shard(id), [&](const UnrepliedGradient& gradient) {
      return VersionMadeBy(gradient.step) == version;
    });
  }
  size_t given_bytes() const {
    size_t bytes = 0;
    for (const UnrepliedGradient& gradient : shards_ | std::views::join)
      bytes += gradient.is_given() ? gradient.payload.size_bytes() : 0;
    return bytes;
  }

  void Add(ShardId id, UnrepliedGradient gradient) {
    shards_[id.value()].push_back(std::move(gradient));
  }
  void OnCommitted(ShardId id, Version version) {
    std::erase_if(shards_[id.value()], [&](const UnrepliedGradient& gradient) {
      return VersionMadeBy(gradient.step) <= version;
    });
  }
  // Steps from this one on were abandoned.
  void DropFrom(Step step) {
    for (auto& gradients : shards_)
      std::erase_if(gradients, [&](const auto& gradient) { return gradient.step >= step; });
  }
  void Clear() { shards_.assign(shards_.size(), {}); }

  // ---- delivery --------------------------------------------------------------------------------
  void MarkSent(ShardId id, size_t index, Delivery delivery) {
    shards_[id.value()][index].delivery = delivery;
  }
  // The lane holds it: the answer to a push was Pending.
  void MarkHeld(ShardId id, TreeNode node, Version version) {
    for (UnrepliedGradient& gradient : shards_[id.value()]) {
      if (gradient.node == node && VersionMadeBy(gradient.step) == version) gradient.is_held = true;
    }
  }
  // Another lane may be the primary now, so all gradients are sent again.
  void EnterView();
  // The relay was given up: the gradients that it was given go to the lanes.
  void TakeBackGiven();
  // Gradients that a lane does not hold, according to its answer, were lost and are sent again
  // (P10). True if it holds any.
  bool JudgePushed(const AnswerItem& item) {
    bool is_any_held = false;
    for (UnrepliedGradient& gradient : shards_[item.shard.value()]) {
      if (!gradient.is_pushed()) continue;
      // A lane that was promoted may hold it, and not know that the version it reads is committed.
      const bool is_judged = VersionReadBy(gradient.step) <= item.version;
      if (gradient.is_held && !is_judged) continue;
      const MicroBatchTree tree = steps_.Tree(gradient.step);
      gradient.is_held = StepReading(item.version) == gradient.step &&
                         IsHeld(item, tree.Range(gradient.node), tree);
      if (!gradient.is_held) gradient.delivery = Delivery::kUnsent;
      is_any_held |= gradient.is_held;
    }
    return is_any_held;
  }
  // The same for the relay: every gradient that it was given and does not hold is given again.
  void JudgeGiven(const AnswerItem& item) {
    for (UnrepliedGradient& gradient : shards_[item.shard.value()]) {
      const bool is_held = StepReading(item.version) == gradient.step &&
                           std::ranges::find(item.nodes, gradient.node) != item.nodes.end();
      if (gradient.is_given() && !is_held) gradient.delivery = Delivery::kUnsent;
    }
  }

  // ---- sums ------------------------------------------------------------------------------------
  // Whether a gradient here is the sum of this node, or of a node above it.
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
  const StepPlan& steps_;
  std::vector<std::vector<UnrepliedGradient>> shards_;
};

// Every part of a session works on these references. All of them outlive the part.
class SessionPart {
 public:
  SessionPart(const JobPlan& plan, ViewMember& member, CommittedVersions& versions,
              UnrepliedGradients& gradients, ComputePort& compute)
      : plan_(plan),
        member_(member),
        versions_(versions),
        gradients_(gradients),
        compute_(compute) {}

 protected:
  const JobPlan& plan_;
  ViewMember& member_;
  CommittedVersions& versions_;
  UnrepliedGradients& gradients_;
  ComputePort& compute_;
};

}  // namespace pando
