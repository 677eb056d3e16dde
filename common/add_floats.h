// The gradient sums of servers and relays (P2): left + right, float by float. Computing has its own
// version (kernels/ops.h).
#pragma once

#include <cstddef>
#include <span>

namespace pando {

// out[i] = left[i] + right[i]. All spans have the same size; `out` may be one of the others.
inline void AddSpans(float* out, std::span<const float> left, std::span<const float> right) {
  const float* l = left.data();
  const float* r = right.data();
  for (size_t i = 0; i < left.size(); ++i) out[i] = l[i] + r[i];
}

}  // namespace pando
