// Optimizer: makes version t + 1 of a range of floats from version t and the root gradient.
// Called by the shard core and the serial trainer. + − × ÷ √ only, one rounding each (P36), so
// replicas on different CPUs agree; formulas and defaults as PyTorch's, cited at each.
// Threads: none; stateless but for its options.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/job.h"
#include "common/tensor_layout.h"
#include "proto/messages.h"

namespace pando {

// How many state floats per parameter the optimizer keeps: 0 (SGD), 1 (momentum), 2 (Adam, AdamW).
uint32_t OptimizerStateCount(const OptimizerOptions& options);

class Optimizer {
 public:
  // `layout` must outlive the optimizer: it says which floats are parameters, statistics, metrics.
  Optimizer(const OptimizerOptions& options, const TensorLayout& layout);

  uint32_t state_count() const { return state_count_; }

  struct Update {
    ShardRange range;                   // of the flat vector; all spans below cover it
    std::span<const float> parameters;  // version t
    std::span<const float> gradient;    // the tree's root: a sum over samples, unscaled
    float gradient_scale = 1;           // 1 / the step's sample count (P2)
    StepScalars scalars;
    bool is_first_step = false;       // step 0: momentum starts as a copy of the gradient
    std::span<const float> state;     // [state_count, range.size()], of version t
    std::span<float> parameters_out;  // version t + 1
    std::span<float> state_out;       // of version t + 1; may be the same memory as `state`
  };
  // Statistics move by their momentum, metrics become the mean, padding stays zero.
  void Apply(const Update& update) const;

 private:
  struct Piece {  // a run of floats of one kind
    ShardRange range;
    TensorKind kind = TensorKind::kParameter;
  };
  OptimizerOptions options_;
  uint32_t state_count_;
  std::vector<Piece> pieces_;  // ascending, all floats but padding
};

}  // namespace pando
