// PartialPlan: the norms over several shards that an update may need (P14): of all gradients for
// clipping, of each tensor for LARS and LAMB. Each shard's primary makes its shard's partial values
// (Optimizer::MakePartials); what they come to for a shard, its factors, is computed here. Called
// by the lane and the serial trainer. + − × ÷ √ only, in the order of shards (P36).
//
//   partial values of a shard | norm of its part of the gradient, for clipping; then, of each
//                             | adapted tensor that it holds a part of, ascending: norm of that
//                             part | of the weights, norm of that part of the update
//                             | With loss scaling, last: 1 where its gradient is finite, else 0.
//   factors of a shard        | of the gradient; then of each of these tensors' updates
//                             | With loss scaling, last: 1 where the step counts, 0: it is skipped.
//
// Threads: any; immutable.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "server/optimizer.h"

namespace pando {

class PartialPlan {
 public:
  PartialPlan(const OptimizerOptions& options, const TensorLayout& layout, const ShardPlan& shards);

  // No update waits for anything but its own shard.
  bool is_empty() const { return needs_.empty(); }
  // The shards whose partial values this shard's factors are made of, itself among them. If it
  // needs another's, that one needs its own.  REQUIRES: !is_empty().
  ShardPlan::Run Needs(ShardId shard) const { return needs_[shard.value()]; }

  // A shard's partial values; empty while they are not there.
  using PartialsOf = std::function<std::span<const float>(ShardId)>;
  // None while values of Needs(shard) are missing.  REQUIRES: !is_empty(); values have the size
  // that Optimizer::partial_count says.
  std::optional<std::vector<float>> Combine(ShardId shard, const PartialsOf& partials) const;

 private:
  bool AreFinite(ShardPlan::Run shards, const PartialsOf& partials) const;
  double NormOf(ShardPlan::Run shards, const PartialsOf& partials) const;
  float FactorOf(size_t tensor, double clip_factor, const PartialsOf& partials) const;

  OptimizerOptions options_;
  std::vector<ShardPlan::Run> needs_;         // by shard
  std::vector<std::vector<size_t>> adapted_;  // by shard: its adapted tensors, ascending
  std::vector<ShardPlan::Run> covering_;      // by tensor
};

}  // namespace pando
