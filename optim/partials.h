// PartialPlan: the norms over several shards that an update may need (P14): of all gradients for
// clipping, of each tensor for LARS and LAMB. Each shard's primary computes its shard's partial
// values (Optimizer::MakePartials). This computes a shard's factors from them. Called by the
// version maker. It uses + − × ÷ √ only, in the order of shards (P36).
//
//   partial values of a shard | norm of its part of the gradient, for clipping; then, for each
//                             | adapted tensor that it has a part of, ascending: norm of that part
//                             | of the weights, norm of that part of the update
//                             | With loss scaling, last: 1 if its gradient is finite, else 0.
//   factors of a shard        | of the gradient; then of each of these tensors' updates
//                             | With loss scaling, last: 1 if the step counts, 0 if it is skipped.
//
// Threads: any; immutable.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "optim/optimizer.h"

namespace pando {

class PartialPlan {
 public:
  PartialPlan(const OptimizerOptions& options, const TensorLayout& layout, const ShardPlan& shards);

  // Every update needs values of one shard only.
  bool is_empty() const { return needs_.empty(); }
  // The shards whose partial values this shard's factors need, itself included. The relation is
  // symmetric.
  // REQUIRES: !is_empty().
  ShardPlan::Run Needs(ShardId shard) const { return needs_[shard.value()]; }

  // A shard's partial values; empty while they are missing.
  using FindPartials = std::function<std::span<const float>(ShardId)>;
  // None while values of Needs(shard) are missing.  REQUIRES: !is_empty(); values have the size
  // that Optimizer::partial_count says.
  std::optional<std::vector<float>> Combine(ShardId shard, const FindPartials& partials) const;

 private:
  bool AreFinite(ShardPlan::Run shards, const FindPartials& partials) const;
  double GradientNorm(ShardPlan::Run shards, const FindPartials& partials) const;
  float TrustRatio(size_t tensor, double clip_factor, const FindPartials& partials) const;

  OptimizerOptions options_;
  std::vector<ShardPlan::Run> needs_;         // by shard
  std::vector<std::vector<size_t>> adapted_;  // by shard: its adapted tensors, ascending
  std::vector<ShardPlan::Run> covering_;      // by tensor
};

}  // namespace pando
