// Spans of floats as Eigen's arrays, whose expressions work element by element. Used where servers
// and workers update and add (P36). Not for sums over elements: Eigen chooses their order (P35).
#pragma once

#include <Eigen/Core>
#include <span>

#include "common/check.h"

namespace pando {

using Floats = Eigen::Map<Eigen::ArrayXf>;
using ConstFloats = Eigen::Map<const Eigen::ArrayXf>;

inline Floats ToArray(std::span<float> floats) {
  return {floats.data(), static_cast<Eigen::Index>(floats.size())};
}
inline ConstFloats ToArray(std::span<const float> floats) {
  return {floats.data(), static_cast<Eigen::Index>(floats.size())};
}

// The gradient sums of servers and relays (P2): out = left + right. All spans have the same size;
// `out` may be one of the others. Computing has its own version (kernels/ops.h).
void AddSpans(float* out, std::span<const float> left, std::span<const float> right);

}  // namespace pando
