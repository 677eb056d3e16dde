// LossScale: the factor of the loss in fp16 training, which keeps gradients within half floats. It
// is a scalar of the version (P1) and travels in its metric tensor. Workers read it; the optimizer
// changes it, alike on every replica.
// Source: DeepSpeed's DynamicLossScaler.update_scale.
#pragma once

#include <span>

#include "plan/job.h"

namespace pando {

struct LossScale {
  float scale = 0;       // a power of two, unless it is fixed
  float good_steps = 0;  // since the last overflow or doubling, this step included
  float hysteresis = 0;  // overflows left until it is halved; 0: one came at the smallest scale
  bool operator==(const LossScale&) const = default;
};

// The scale in a version's metric tensor. Version 0's tensor has zeros.
LossScale ReadLossScale(const LossScaleOptions& options, std::span<const float> metrics);
// After a step whose gradient was finite or overflowed.
LossScale NextLossScale(const LossScaleOptions& options, LossScale now, bool has_overflowed);

}  // namespace pando
