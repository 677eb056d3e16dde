#include "plan/loss_scale.h"

#include <doctest/doctest.h>

#include <array>

#include "plan/tensor_layout.h"

namespace pando {
namespace {

LossScaleOptions Moving() {
  return {.is_on = true, .initial_scale_power = 4, .loss_scale_window = 3, .hysteresis = 2};
}

LossScale First(const LossScaleOptions& options) {
  return ReadLossScale(options, std::array<float, kMetricSlotCount>{});
}

TEST_CASE("the loss scale doubles after a window without an overflow, and so on") {
  LossScale scale = First(Moving());
  CHECK(scale.scale == 16);
  const float expected[] = {16, 16, 32, 32, 32, 64};
  for (const float next : expected) {
    scale = NextLossScale(Moving(), scale, false);
    CHECK(scale.scale == next);
  }
}

TEST_CASE("it halves once as many overflows have come as the hysteresis says") {
  LossScale scale = First(Moving());
  scale = NextLossScale(Moving(), scale, true);
  CHECK(scale.scale == 16);
  scale = NextLossScale(Moving(), scale, true);
  CHECK(scale.scale == 8);
  scale = NextLossScale(Moving(), scale, true);  // the hysteresis is used up until it doubles again
  CHECK(scale.scale == 4);
  for (int i = 0; i < 3; ++i) scale = NextLossScale(Moving(), scale, false);
  CHECK(scale.scale == 8);
  scale = NextLossScale(Moving(), scale, true);
  CHECK(scale.scale == 8);
}

TEST_CASE("an overflow at the smallest scale is reported, and a fixed scale never changes") {
  LossScaleOptions options = Moving();
  options.min_loss_scale = 16;
  options.hysteresis = 1;
  const LossScale stuck = NextLossScale(options, First(options), true);
  CHECK(stuck.scale == 16);
  CHECK(stuck.hysteresis == 0);
  options.loss_scale = 128;
  const LossScale fixed = First(options);
  CHECK(fixed.scale == 128);
  CHECK(NextLossScale(options, fixed, true) == fixed);
  CHECK(NextLossScale(options, fixed, false) == fixed);
}

TEST_CASE("it is read from a version's metrics as it was written there") {
  const LossScale scale{.scale = 1024, .good_steps = 17, .hysteresis = 1};
  std::array<float, kMetricSlotCount> metrics{};
  metrics[kMetricLossScale] = scale.scale;
  metrics[kMetricGoodSteps] = scale.good_steps;
  metrics[kMetricHysteresis] = scale.hysteresis;
  CHECK(ReadLossScale(Moving(), metrics) == scale);
}

}  // namespace
}  // namespace pando
