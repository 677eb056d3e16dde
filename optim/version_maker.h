// VersionMaker makes version t + 1 of a shard from version t and the root gradient of step t: mean,
// clipping, norms, optimizer, statistics, average of the weights. It is the only implementation.
// Called by the server's shard (server/shard.h), and by train/local_update.h where one process
// holds every shard.
// Threads: any; immutable.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "optim/optimizer.h"
#include "optim/partials.h"
#include "plan/job_plan.h"

namespace pando {

class VersionMaker {
 public:
  // `plan` outlives the maker.
  explicit VersionMaker(const JobPlan& plan)
      : plan_(plan),
        optimizer_(plan.job.optimizer, plan.layout),
        partial_plan_(plan.job.optimizer, plan.layout, plan.shards) {}

  // What a step reads of one shard.
  struct Inputs {
    ShardId shard;
    Step step;
    StepScalars scalars;
    std::span<const float> parameters = {};  // version t
    std::span<const float> state = {};       // the optimizer's, of version t
    std::span<const float> gradient = {};    // the tree's root: a sum over the samples, unscaled
    // Where the root is not added up yet, `gradient` is its left half. Only without partial values.
    std::span<const float> gradient_right = {};
  };
  // Values over several shards (P14). All are empty where the update needs none.
  struct Norms {
    std::span<const float> partials = {};  // the shard's own; they become the state's tail (P16)
    std::span<const float> factors = {};
  };
  struct Outputs {
    std::span<float> parameters;
    std::span<float> state;  // may be the memory of Inputs::state
  };

  // Whether updates need values over several shards.
  bool has_partials() const { return optimizer_.has_partials(); }
  size_t state_floats(ShardId shard) const { return optimizer_.state_floats(range(shard)); }
  size_t partial_count(ShardId shard) const { return optimizer_.partial_count(range(shard)); }
  size_t factor_count(ShardId shard) const { return optimizer_.factor_count(range(shard)); }
  // The shards whose partial values this shard's factors are made of.  REQUIRES: has_partials().
  ShardPlan::Run Needs(ShardId shard) const { return partial_plan_.Needs(shard); }
  // The partial values of the step that made the version with this state.
  std::span<const float> StoredPartials(ShardId shard, std::span<const float> state) const {
    return state.last(partial_count(shard));
  }

  // REQUIRES: has_partials(); the whole root is in `gradient`.
  std::vector<float> MakePartials(const Inputs& inputs) const;
  // Empty where the update needs no factors; none while partial values of Needs(shard) are missing.
  std::optional<std::vector<float>> Combine(ShardId shard,
                                            const PartialPlan::FindPartials& partials) const;
  // REQUIRES: `norms` are as MakePartials and Combine gave them.
  void Make(const Inputs& inputs, const Norms& norms, const Outputs& outputs) const;

 private:
  const ShardRange& range(ShardId shard) const { return plan_.shards.range(shard); }
  Optimizer::Update ToUpdate(const Inputs& inputs) const;

  const JobPlan& plan_;
  const Optimizer optimizer_;
  const PartialPlan partial_plan_;
};

}  // namespace pando
