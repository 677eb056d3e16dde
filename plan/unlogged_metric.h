// UnloggedSum is the value in the metric tensor of a metric that a program did not log. It is
// finite, so that it passes through the tree's sums and the step's mean, and below any loss. embed/
// writes it, and server/progress_report reads it.
#pragma once

#include <limits>

namespace pando {

// `weight` is the weight of the micro-batch in the step's mean.
inline float UnloggedSum(double weight) { return static_cast<float>(-1e25 * weight); }

// Returns the step's mean, or NaN if one of its up to 65,536 micro-batches did not log the metric.
inline float LoggedMean(float mean) {
  return mean < -1e18F ? std::numeric_limits<float>::quiet_NaN() : mean;
}

}  // namespace pando
