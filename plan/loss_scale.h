// LossScale is the factor of the loss in fp16 training, which keeps gradients in the range of half
// floats. It is a part of the version (P1), in its metric tensor. Workers read it. The optimizer
// changes it, equally on every replica.
// Source: DeepSpeed's DynamicLossScaler.update_scale.
#pragma once

#include <span>

#include "plan/job.h"

namespace pando {

struct LossScale {
  float scale = 0;       // a power of two, unless it is fixed
  float good_steps = 0;  // since the last overflow or doubling, with this step
  float hysteresis = 0;  // overflows until the next halving; 0: one came at the smallest scale
  bool operator==(const LossScale&) const = default;
};

// Reads the scale from a version's metric tensor. Version 0's tensor has zeros.
LossScale ReadLossScale(const LossScaleOptions& options, std::span<const float> metrics);
// Returns the scale after a step whose gradient was finite or overflowed.
LossScale NextLossScale(const LossScaleOptions& options, LossScale now, bool has_overflowed);

}  // namespace pando
