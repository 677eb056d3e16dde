// This header has VersionMaker, which makes the next version of a shard, and PartialPlan, which
// supplies the factors that come from norms over several shards.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "optim/optimizer.h"
#include "plan/job_plan.h"

namespace pando {

// PartialPlan combines the norms over several shards that an update may need (P14): of all
// gradients for clipping, of each tensor for LARS and LAMB. Each shard's primary computes its
// shard's partial values (Optimizer::MakePartials). PartialPlan computes a shard's factors from
// them. Sums are exact, so the cut into shards changes no bit of a factor (P36).
//
//   partial values of a shard | sum of the squares (ExactSum) of its part of the gradient, for
//                             | clipping; then, for each adapted tensor that it has a part of,
//                             | ascending: the sums of its part of the weights and the update
//                             | With loss scaling, last: 1 if its gradient is finite, else 0.
//                             | In a weighted job the gradient is a sum, not a mean; and last:
//                             | the step's weight if the shard has the metrics, else 0.
//   factors of a shard        | of the gradient; then of each of these tensors' updates
//                             | With loss scaling, last: 1 if the step counts, 0 if it is skipped.
//                             | In a weighted job, last: the scale that makes sums means.
//
// Threads: any; immutable.
class PartialPlan {
 public:
  PartialPlan(const OptimizerOptions& options, const TensorLayout& layout, const ShardPlan& shards);

  // Returns whether every update needs only values of one shard.
  bool is_empty() const { return needs_.empty(); }
  // Returns the shards whose partial values this shard's factors need, with itself. The relation is
  // symmetric.
  // REQUIRES: !is_empty().
  ShardPlan::Run Needs(ShardId shard) const { return needs_[shard.value()]; }

  // Returns a shard's partial values; empty while they are missing.
  using FindPartials = std::function<std::span<const float>(ShardId)>;
  // Returns the shard's factors, or none while values of Needs(shard) are missing. REQUIRES:
  // !is_empty(); each shard's values have the size Optimizer::partial_count.
  std::optional<std::vector<float>> Combine(ShardId shard, const FindPartials& partials) const;

 private:
  bool AreFinite(ShardPlan::Run shards, const FindPartials& partials) const;
  static double GradientNorm(ShardPlan::Run shards, const FindPartials& partials);
  float MeanScale(ShardPlan::Run shards, const FindPartials& partials) const;
  float TrustRatio(size_t tensor, double clip_factor, const FindPartials& partials) const;

  OptimizerOptions options_;
  std::vector<ShardPlan::Run> needs_;         // by shard
  std::vector<std::vector<size_t>> adapted_;  // by shard: its adapted tensors, ascending
  std::vector<ShardPlan::Run> covering_;      // by tensor
};

// VersionMaker makes version t + 1 of a shard from version t and the root gradient of step t: mean,
// clipping, norms, optimizer, statistics, average of the weights. It is the only implementation.
// server/shard.h calls it, and so does train/local_update.h if one process holds every shard.
// Threads: any; immutable.
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
    std::span<const float> state = {};       // the optimizer's, of version t
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
  size_t state_floats(ShardId shard) const { return optimizer_.state_floats(range(shard)); }
  size_t partial_count(ShardId shard) const { return optimizer_.partial_count(range(shard)); }
  size_t factor_count(ShardId shard) const { return optimizer_.factor_count(range(shard)); }
  // Returns the shards whose partial values this shard's factors need.  REQUIRES: has_partials().
  ShardPlan::Run Needs(ShardId shard) const { return partial_plan_.Needs(shard); }
  // Returns the partial values of the step that made the version with this state.
  std::span<const float> StoredPartials(ShardId shard, std::span<const float> state) const {
    return state.last(partial_count(shard));
  }

  // Returns the shard's partial values.  REQUIRES: has_partials(); the whole root is in `gradient`.
  std::vector<float> MakePartials(const Inputs& inputs) const;
  // Returns the shard's factors; empty if the update needs none; none while partial values of
  // Needs(shard) are missing.
  std::optional<std::vector<float>> Combine(ShardId shard,
                                            const PartialPlan::FindPartials& partials) const;
  // Makes the version.  REQUIRES: `norms` come from MakePartials and Combine.
  void Make(const Inputs& inputs, const Norms& norms, const Outputs& outputs) const;

 private:
  const ShardRange& range(ShardId shard) const { return plan_.shards.range(shard); }
  Optimizer::Update ToUpdate(const Inputs& inputs) const;

  const JobPlan& plan_;
  const Optimizer optimizer_;
  const PartialPlan partial_plan_;
};

}  // namespace pando
