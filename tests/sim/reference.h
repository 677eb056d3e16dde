// The job that the simulator trains, and its undisturbed run: gradients are cheap pure functions of
// (all parameters read, step, micro-batch), so one wrong bit anywhere changes every later version.
#pragma once

#include <span>
#include <vector>

#include "common/float_buffer.h"
#include "common/job_plan.h"
#include "proto/messages.h"

namespace pando::sim {

class Chance;

// A job of a few steps over a model of a few shards, all sizes drawn from the seed.
JobPlan DrawPlan(Chance& chance);

// A hash over the shards that the forward reads: all but the metric shard (P4 is there for it).
uint64_t DigestOfRead(const JobPlan& plan, const std::vector<std::span<const float>>& shards);
// The gradient of one micro-batch, all shards end to end.
std::vector<float> LeafGradient(const JobPlan& plan, uint64_t digest, Step step, MicroBatch m);
// The sum under a tree node, by plain recursion.
std::vector<float> NodeGradient(const JobPlan& plan, uint64_t digest, Step step, TreeNode node);
EvaluationResult EvaluateSliceOf(uint64_t digest, const Evaluate& request);

// The serial run: every version of the flat vector.
class Reference {
 public:
  explicit Reference(const JobPlan& plan);
  std::span<const float> ShardAt(ShardId shard, Version version) const;
  uint64_t DigestAt(Version version) const;
  std::span<const float> FlatAt(Version version) const { return versions_[version.value()].span(); }

 private:
  const JobPlan& plan_;
  std::vector<FloatBuffer> versions_;
};

}  // namespace pando::sim
