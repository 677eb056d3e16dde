// The job that the simulator trains, and its undisturbed run: gradients are cheap pure functions of
// (all parameters read, step, micro-batch), so one wrong bit anywhere changes every later version.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/blob.h"
#include "common/float_buffer.h"
#include "optim/schedule.h"
#include "optim/version_maker.h"
#include "plan/job_plan.h"
#include "proto/messages.h"

namespace pando::sim {

// As they travel (P34), and what is read of what travelled.
Blob Sent(const PayloadPlan& payloads, ShardId shard, std::span<const float> floats);
std::vector<float> Received(const PayloadPlan& payloads, ShardId shard, const Blob& payload);

// A hash over the shards that the forward reads: all but the metric shard (P4 is there for it).
uint64_t DigestOfRead(const JobPlan& plan, const std::vector<std::span<const float>>& shards);
// The gradient of one micro-batch, all shards end to end.
std::vector<float> LeafGradient(const JobPlan& plan, uint64_t digest, Step step, MicroBatch m);
// The sum under a tree node, by plain recursion.
using LeafOf = std::function<std::vector<float>(MicroBatch)>;
std::vector<float> NodeGradient(const MicroBatchTree& tree, TreeNode node, const LeafOf& leaf);
EvaluationResult MakeEvaluation(uint64_t digest, const Evaluate& request);
// P31a: what the program's function says about this version. It ends one run in eight.
std::string StopText(const JobPlan& plan, uint64_t digest);
// The result of an evaluation of the whole test set.
struct EvaluationTotals {
  uint64_t sample_count = 0;
  uint64_t correct_count = 0;
  double loss_sum = 0;
};
EvaluationTotals EvaluateAll(const JobPlan& plan, uint64_t digest, Version version);

// The serial run: every version of the flat vector, and the optimizer's state by its hash.
class Reference {
 public:
  explicit Reference(const JobPlan& plan);
  std::span<const float> ShardAt(ShardId shard, Version version) const;
  // The hash of the shard's state at this version, as a lane keeps it.
  uint64_t StateHashAt(ShardId shard, Version version) const {
    return state_hashes_[version.value()][shard.value()];
  }
  static uint64_t HashOfState(std::span<const float> state);
  uint64_t DigestAt(Version version) const;
  // The values that workers get for training.
  std::vector<float> ShownAt(ShardId shard, Version version) const;
  std::span<const float> FlatAt(Version version) const { return versions_[version.value()].span(); }
  // The run's last version: an early stop's, if there is one (P32).
  Version final_version() const { return final_version_; }

 private:
  FloatBuffer Next(const Optimizer& optimizer, const PartialPlan& partial_plan,
                   const Schedule& schedule, Step step);
  uint64_t TrainingDigestAt(Version version) const;
  void NoteStates();
  void FindFinalVersion();

  const JobPlan& plan_;
  std::vector<FloatBuffer> states_;  // by shard, of the newest version
  std::vector<FloatBuffer> versions_;
  Version final_version_;
  std::vector<std::vector<uint64_t>> state_hashes_;  // by version, by shard
};

}  // namespace pando::sim
