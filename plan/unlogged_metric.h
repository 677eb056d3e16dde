// UnloggedSum: what the metric tensor has in place of a value that a program did not log. It is
// finite, so that it passes through the tree's sums and the step's mean, and below any loss. Used
// by embed/, which writes it, and server/reports, which reads it.
#pragma once

#include <limits>

namespace pando {

// `weight`: the weight of the micro-batch in the step's mean.
inline float UnloggedSum(double weight) { return static_cast<float>(-1e25 * weight); }

// The step's mean; not a number if it lacks a micro-batch, of which a step has up to 65,536.
inline float LoggedMean(float mean) {
  return mean < -1e18F ? std::numeric_limits<float>::quiet_NaN() : mean;
}

}  // namespace pando
