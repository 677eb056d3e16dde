// What the parts of a session share: which versions are committed, what the primaries hold, and
// SessionPart, which names what every part works on. Threads: none.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "plan/job_plan.h"
#include "proto/view_member.h"
#include "train/compute_port.h"

namespace pando {

// Acts on the news of the parts at once.
class SessionListener {
 public:
  virtual ~SessionListener() = default;
  virtual void OnCommitted(ShardId shard, Version version) = 0;
  // The step is in the works from now on: its parameters are needed.
  virtual void OnStepBegun(Step step) = 0;
  // What compute made of these steps does not count; it may be computed again.
  virtual void OnStepsAbandoned(Step from) = 0;
};

// The newest version of each shard that is known to be committed. Messages of many kinds bring such
// news.
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

// What the primaries say in one view that they hold (P17), by shard.
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

class UnrepliedGradients;

// What every part of a session works on. All of it outlives the part.
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
