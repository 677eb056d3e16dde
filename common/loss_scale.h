// LossScale: by what fp16 training multiplies the loss, so that gradients stay within half floats.
// It is a scalar of the version (P1) and travels in its metric tensor. Read by the worker, moved by
// the optimizer, alike on every replica.
// Source: DeepSpeed's DynamicLossScaler.update_scale.
#pragma once

#include <span>

#include "common/job.h"

namespace pando {

struct LossScale {
  float scale = 0;       // a power of two, unless it is fixed
  float good_steps = 0;  // since the last overflow or doubling, the one at hand counted
  float hysteresis = 0;  // overflows left until it halves; 0: one came at the smallest scale
  bool operator==(const LossScale&) const = default;
};

// Of the version whose metric tensor this is; version 0's holds zeros.
LossScale LossScaleOf(const LossScaleOptions& options, std::span<const float> metrics);
// After a step with a gradient that was finite, or overflowed.
LossScale NextLossScale(const LossScaleOptions& options, LossScale now, bool has_overflowed);

}  // namespace pando
