// The partial values of a shard that begin with an ExactSum, for tests of norms.
#pragma once

#include <span>
#include <vector>

#include "optim/exact_sum.h"

namespace pando {

inline std::vector<float> WrittenSum(double squares) {
  ExactSum sum;
  sum.Add(squares);
  std::vector<float> floats(ExactSum::kFloats);
  sum.Write(floats);
  return floats;
}

inline double ReadSum(std::span<const float> partials) {
  ExactSum sum;
  sum.AddWritten(partials.first(ExactSum::kFloats));
  return sum.Total();
}

}  // namespace pando
