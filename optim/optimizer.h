// Optimizer makes version t + 1 of a range of floats from version t and the root gradient.
// VersionMaker calls it. It uses only + − × ÷ √, with one rounding each (P36), so replicas on
// different CPUs agree. Formulas and defaults are PyTorch's. Threads: any; immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/job.h"
#include "plan/optimizer_turns.h"
#include "plan/shard_plan.h"
#include "plan/tensor_layout.h"
#include "proto/messages.h"

namespace pando {

// Returns how many state floats per parameter the optimizer keeps: 0 (SGD), 1 (momentum, LARS,
// Adagrad), 2 (Adam, AdamW, LAMB, NAdam, Adadelta), 1 to 3 (RMSprop); and one more, the last, if an
// average of the weights is kept.
uint32_t OptimizerStateCount(const OptimizerOptions& options);
// Returns whether updates of this tensor have their own trust ratio.
bool IsAdapted(const OptimizerOptions& options, const TensorSpec& spec);

class Optimizer {
 public:
  // `layout` outlives the optimizer and says which floats are parameters, statistics, metrics.
  Optimizer(const OptimizerOptions& options, const TensorLayout& layout);

  const OptimizerTurns& turns() const { return turns_; }
  uint32_t state_count() const { return state_count_; }
  bool has_partials() const { return HasPartials(options_); }
  size_t partial_count(ShardRange range) const;  // 0 without partial values
  size_t factor_count(ShardRange range) const;
  // A shard's state has state_count floats for each float of its range; with loss scaling the count
  // of steps not skipped; then the partial values of the step that made the version (P16).
  size_t state_floats(ShardRange range) const {
    return state_count_ * range.size() + (skips_overflows() ? 1 : 0) + partial_count(range);
  }

  struct Update {
    ShardRange range;                        // of the flat vector; all spans below cover it
    std::span<const float> parameters = {};  // version t
    std::span<const float> read = {};        // the version that the step read; empty: version t
    std::span<const float> gradient = {};    // the tree's root: the unscaled sum over samples
    // For Apply, if the root is not added up yet: its right half. `gradient` is then its left half.
    std::span<const float> gradient_right = {};
    float gradient_scale = 1;  // 1 / the step's sample count (P2)
    // In a weighted job the scale of all but statistics: 1 / the step's weight; 1 in MakePartials.
    std::optional<float> weight_scale = {};
    StepScalars scalars = {};
    // The first step of its group: momentum starts as a copy of the gradient.
    bool is_first_step = false;
    bool is_first_of_run = false;          // with several groups: averages start as copies
    uint32_t group = 0;                    // the step trains this group of turns()
    std::span<const float> factors = {};   // factor_count(range), from PartialPlan::Combine
    std::span<const float> state = {};     // state_floats(range), of version t
    std::span<float> parameters_out = {};  // version t + 1
    std::span<float> state_out = {};       // version t + 1; may be the memory of `state`
  };
  // Computes this step's partial_count(range) partial values. It reads what Apply reads, except
  // factors, so it must run first if the state is updated in place. It writes only `partials`.
  void MakePartials(const Update& update, std::span<float> partials) const;
  // Makes the version. Statistics move by their momentum from those that the step read, metrics
  // become the mean, padding stays zero. Parameters of other groups stay as they are. The caller
  // writes the partial values into the state's tail. A skipped step changes only the metric tensor,
  // which has the new loss scale.
  void Apply(const Update& update) const;

 private:
  friend struct OptimizerLoops;
  struct Run {  // adjacent floats with the same update
    ShardRange range;
    TensorKind kind = TensorKind::kParameter;
    bool decays = true;        // kParameter: weight decay applies
    bool is_adapted = false;   // kParameter: has a trust ratio; such a run is one tensor
    float momentum = 0.0f;     // kStatistic: the share of a step in the running value
    double lr_factor = 1.0;    // kParameter: factor of the step's rate
    double weight_decay = -1;  // kParameter: its own; negative: the options'
    uint32_t group = 0;        // kParameter: its group of turns()
    bool IsLike(const Run& other) const {
      return kind == other.kind && decays == other.decays && momentum == other.momentum &&
             lr_factor == other.lr_factor && weight_decay == other.weight_decay &&
             group == other.group && !is_adapted && !other.is_adapted;
    }
    bool has_own_group() const { return lr_factor != 1.0 || weight_decay >= 0.0; }
  };
  bool skips_overflows() const { return options_.loss_scale.is_on; }
  // Returns whether the last partial value and factor are the step's finiteness or weight.
  bool has_last() const { return skips_overflows() || options_.is_weighted; }
  // Returns the place in a state of the count of steps that were not skipped.
  size_t StepCountAt(ShardRange range) const { return state_count_ * range.size(); }
  bool IsSkipped(const Update& update) const {
    return skips_overflows() && update.factors.back() == 0.0f;
  }
  // Do the work of MakePartials and Apply, compiled for one CPU level.
  void MakePartialsHere(const Update& update, std::span<float> partials) const;
  void ApplyHere(const Update& update) const;
  Update Counted(const Update& update) const;
  void Skip(const Update& update) const;
  void Keep(const Update& update, ShardRange part) const;
  void MoveLossScale(const Update& update, ShardRange metrics) const;
  Run MakeRun(const TensorSpec& spec, ShardRange range) const;
  // Calls visit(run, part) for the part of each run within the range, ascending.
  template <class Visit>
  void VisitParts(ShardRange range, Visit visit) const;

  OptimizerTurns turns_;
  OptimizerOptions options_;  // of the first group; clipping and averages are equal in all groups
  uint32_t state_count_;
  std::vector<Run> runs_;  // ascending; all floats except padding
};

}  // namespace pando
