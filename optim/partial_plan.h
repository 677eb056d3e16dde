// Norms over several shards: PartialPlan supplies the factors that come from them, PartialTotal
// adds them up.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "optim/exact_sum.h"
#include "optim/optimizer.h"

namespace pando {

// PartialTotal is what updates may need of the partial values of all shards, added up over some of
// them. Nothing is rounded, so totals of disjoint sets of shards add up in any order (P16).
struct PartialTotal {
  static constexpr size_t kFloats = ExactSum::kFloats + 2;

  // Adds a total that Write wrote.  REQUIRES: kFloats floats.
  void AddWritten(std::span<const float> total);
  std::vector<float> Write() const;

  ExactSum squares;       // for clipping
  bool is_finite = true;  // for loss scaling
  float weight = 0;  // of the step, in a weighted job; 0 without the shard that has the metrics
};

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
  bool is_empty() const { return neighbours_.empty(); }
  // Returns whether each shard's factors need the total over all shards.
  bool needs_total() const {
    return options_.clip_norm > 0 || options_.loss_scale.is_on || options_.is_weighted;
  }
  // Returns the shards whose own partial values this shard's factors need beside the total: those
  // that share an adapted tensor with it, and itself. The relation is symmetric.
  // REQUIRES: !is_empty().
  ShardPlan::Run Neighbours(ShardId shard) const { return neighbours_[shard.value()]; }

  // Returns a shard's partial values; empty while they are missing. They have the size
  // Optimizer::partial_count.
  using FindPartials = std::function<std::span<const float>(ShardId)>;
  // Adds a shard's values to a total.
  void AddTo(PartialTotal* total, ShardId shard, std::span<const float> partials) const;
  // Returns the shard's factors, or none while values of Neighbours(shard) are missing. `total` is
  // over all shards, or anything if !needs_total().  REQUIRES: !is_empty().
  std::optional<std::vector<float>> Combine(ShardId shard, const PartialTotal& total,
                                            const FindPartials& partials) const;

 private:
  double ClipFactor(const PartialTotal& total, float mean_scale) const;
  float TrustRatio(size_t tensor, double clip_factor, const FindPartials& partials) const;

  OptimizerOptions options_;
  ShardId last_;                              // it has the metrics
  std::vector<ShardPlan::Run> neighbours_;    // by shard
  std::vector<std::vector<size_t>> adapted_;  // by shard: its adapted tensors, ascending
  std::vector<ShardPlan::Run> covering_;      // by tensor
};

}  // namespace pando
