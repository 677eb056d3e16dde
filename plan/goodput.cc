#include "plan/goodput.h"

#include <cmath>
#include <numbers>

#include "common/check.h"

namespace pando {

// The maximum's distribution function is that of a draw to the power of n, F. Its mean is the
// integral of 1 - F over the numbers above 0, less that of F over those below.
double ExpectedMaximum(uint32_t count) {
  PANDO_CHECK(count >= 1);
  constexpr double kStep = 1.0 / 256;  // the midpoint rule's error is then below 1e-5
  constexpr double kEnd = 10;
  double sum = 0;
  for (double x = kStep / 2; x < kEnd; x += kStep) {
    const auto below = [count](double draw) {
      return std::pow(0.5 * std::erfc(-draw / std::numbers::sqrt2), count);
    };
    sum += 1 - below(x) - below(-x);
  }
  return sum * kStep;
}

double GoodputWithReplicas(const Failures& failures, uint32_t machines) {
  return 1 / (1 + failures.recovery_s * machines / failures.mtbf_s);
}

double BestIntervalS(const Failures& failures, uint32_t machines) {
  const double mtbf_s = failures.mtbf_s / machines;
  const double share = failures.checkpoint_s / (2 * mtbf_s);
  if (share >= 1) return mtbf_s;
  return std::sqrt(2 * failures.checkpoint_s * mtbf_s) * (1 + std::sqrt(share) / 3 + share / 9) -
         failures.checkpoint_s;
}

// Daly's equation 13: a segment is one interval and its checkpoint. It is repeated from a restart
// until it has no failure, and restarts fail as well.
double GoodputWithCheckpoints(const Failures& failures, uint32_t machines) {
  const double mtbf_s = failures.mtbf_s / machines;
  const double interval_s = BestIntervalS(failures, machines);
  const double segment_s = mtbf_s * std::exp(failures.restart_s / mtbf_s) *
                           std::expm1((interval_s + failures.checkpoint_s) / mtbf_s);
  return interval_s > 0 ? interval_s / segment_s : std::exp(-failures.restart_s / mtbf_s);
}

}  // namespace pando
