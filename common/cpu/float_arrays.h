// Functions that view float spans as Eigen arrays. Servers and workers update and add with them
// (P36). Never sum elements with them, since Eigen chooses the order (P35).
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

// Adds gradient sums on servers and relays (P2): out = left + right. All spans have the same size;
// `out` may be one of the others. Workers' computing threads have another version (kernels/ops.h).
void AddSpans(float* out, std::span<const float> left, std::span<const float> right);

}  // namespace pando
