// VersionMaker makes version t + 1 of a shard from version t and the root gradient of step t: mean,
// clipping, norms, optimizer, statistics, average of the weights. It is the only implementation.
// server/shard.h calls it, and so does train/local_update.h if one process holds every shard.
// Threads: any; immutable.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "optim/optimizer.h"
#include "optim/partial_plan.h"
#include "plan/job_plan.h"

namespace pando {

class VersionMaker {
 public:
  // `plan` outlives the maker.
  explicit VersionMaker(const JobPlan& plan)
      : plan_(plan),
        optimizer_(plan.job.optimizer, plan.layout),
        partial_plan_(plan.job.optimizer, plan.layout, plan.shards) {}

  // The values of one shard that a step reads.
  struct Inputs {
    ShardId shard;
    Step step;
    StepScalars scalars;
    std::span<const float> parameters = {};  // version t
    std::span<const float> state = {};       // of version t
    std::span<const float> gradient = {};    // the tree's root: the unscaled sum over samples
    // The root's right half if the halves are not added yet; not for updates with partial values.
    std::span<const float> gradient_right = {};
  };
  // The values over several shards (P14). All are empty if the update needs none.
  struct Norms {
    std::span<const float> partials = {};  // the shard's own; they become the state's tail (P16)
    std::span<const float> factors = {};
  };
  struct Outputs {
    std::span<float> parameters;
    std::span<float> state;  // may be the memory of Inputs::state
  };

  // Returns whether updates need values over several shards.
  bool has_partials() const { return optimizer_.has_partials(); }
  // A version's state is the optimizer's, with the partial values of the step that made the version
  // as its tail (P16). With train.staleness the parameters of the version before follow: an update
  // reads them for the running statistics, and the first step after a restore does (P29).
  size_t state_floats(ShardId shard) const {
    return optimizer_.state_floats(range(shard)) + earlier_floats(shard);
  }
  size_t partial_count(ShardId shard) const { return optimizer_.partial_count(range(shard)); }
  size_t factor_count(ShardId shard) const { return optimizer_.factor_count(range(shard)); }
  // REQUIRES: has_partials(), as do the functions of the plan.
  const PartialPlan& partial_plan() const { return partial_plan_; }
  // Returns the partial values of the step that made the version with this state.
  std::span<const float> StoredPartials(ShardId shard, std::span<const float> state) const {
    return OfOptimizer(shard, state).last(partial_count(shard));
  }
  // Returns the parameters of the version before the one with this state. Empty without staleness;
  // zeros for version 0.
  std::span<const float> EarlierParameters(ShardId shard, std::span<const float> state) const {
    return state.last(earlier_floats(shard));
  }

  // Returns the shard's partial values.  REQUIRES: has_partials(); the whole root is in `gradient`.
  std::vector<float> MakePartials(const Inputs& inputs) const;
  // Makes the version.  REQUIRES: `norms` come from MakePartials and Combine.
  void Make(const Inputs& inputs, const Norms& norms, const Outputs& outputs) const;

 private:
  const ShardRange& range(ShardId shard) const { return plan_.shards.range(shard); }
  size_t earlier_floats(ShardId shard) const {
    return plan_.steps.staleness() * range(shard).size();
  }
  template <class T>
  std::span<T> OfOptimizer(ShardId shard, std::span<T> state) const {
    return state.first(state.size() - earlier_floats(shard));
  }
  Optimizer::Update ToUpdate(const Inputs& inputs) const;

  const JobPlan& plan_;
  const Optimizer optimizer_;
  const PartialPlan partial_plan_;
};

}  // namespace pando
