#include "plan/goodput.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

namespace pando {
namespace {

// 1 / sqrt(pi), 1.5 / sqrt(pi), and table values of Harter, Biometrika 48, 1961.
TEST_CASE("the expected maximum of normal draws is that of the tables") {
  constexpr double kIntegral = 1e-5;  // the midpoint rule; 2e-8 measured
  CHECK(std::abs(ExpectedMaximum(1)) < kIntegral);
  CHECK(ExpectedMaximum(2) == doctest::Approx(std::numbers::inv_sqrtpi).epsilon(kIntegral));
  CHECK(ExpectedMaximum(3) == doctest::Approx(1.5 * std::numbers::inv_sqrtpi).epsilon(kIntegral));
  CHECK(ExpectedMaximum(10) == doctest::Approx(1.53875).epsilon(kIntegral));
  CHECK(ExpectedMaximum(100) == doctest::Approx(2.50759).epsilon(kIntegral));
}

TEST_CASE("with replicas a failure costs its recovery, and more machines fail more often") {
  const Failures failures{.mtbf_s = 1000, .recovery_s = 10};
  CHECK(GoodputWithReplicas(failures, 1) == doctest::Approx(1000.0 / 1010));
  CHECK(GoodputWithReplicas(failures, 100) == doctest::Approx(0.5));
}

TEST_CASE("with checkpoints a failure also costs the steps since the last one") {
  const Failures failures{.mtbf_s = 1e6, .checkpoint_s = 5, .restart_s = 60};
  // Young's interval, the square root of 2 * 5 * 10,000, is 316 s.
  const double interval_s = BestIntervalS(failures, 100);
  CHECK(interval_s == doctest::Approx(316.23).epsilon(0.02));
  // In the first order: a checkpoint each, half an interval and the restart for each failure.
  const double lost = 5 / interval_s + (interval_s / 2 + 60) / 1e4;
  CHECK(GoodputWithCheckpoints(failures, 100) == doctest::Approx(1 - lost).epsilon(0.002));
  // No other interval is better, to what Daly's approximation leaves.
  const auto goodput = [](double interval) {
    return interval / (1e4 * std::exp(60 / 1e4) * std::expm1((interval + 5) / 1e4));
  };
  CHECK(GoodputWithCheckpoints(failures, 100) == doctest::Approx(goodput(interval_s)));
  for (const double factor : {0.8, 1.25}) CHECK(goodput(factor * interval_s) < goodput(interval_s));
}

TEST_CASE("goodput is a share, at the ends too") {
  const Failures often{.mtbf_s = 1e-3, .recovery_s = 1, .checkpoint_s = 1e9, .restart_s = 1e9};
  CHECK(GoodputWithCheckpoints(often, 1000) == 0);
  CHECK(GoodputWithReplicas(often, 1000) > 0);
  const Failures free{.mtbf_s = 100};
  CHECK(GoodputWithReplicas(free, 1) == 1);
  CHECK(GoodputWithCheckpoints(free, 1) == 1);
}

}  // namespace
}  // namespace pando
