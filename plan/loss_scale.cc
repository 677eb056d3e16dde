#include "plan/loss_scale.h"

#include <algorithm>

#include "plan/tensor_layout.h"

namespace pando {
namespace {

constexpr float kScaleMax = 1073741824.0f;  // 2^30: with zero gradients it would double forever

float FirstScale(const LossScaleOptions& o) {
  if (o.loss_scale > 0) return static_cast<float>(o.loss_scale);
  return static_cast<float>(uint64_t{1} << o.initial_scale_power);
}

}  // namespace

LossScale ReadLossScale(const LossScaleOptions& options, std::span<const float> metrics) {
  if (metrics[kMetricLossScale] == 0)
    return {FirstScale(options), 1, static_cast<float>(options.hysteresis)};
  return {metrics[kMetricLossScale], metrics[kMetricGoodSteps], metrics[kMetricHysteresis]};
}

LossScale NextLossScale(const LossScaleOptions& options, LossScale now, bool has_overflowed) {
  if (options.loss_scale > 0) return now;
  const auto smallest = static_cast<float>(options.min_loss_scale);
  const auto window = static_cast<float>(options.loss_scale_window);
  if (has_overflowed) {
    if (now.hysteresis > 1) return {now.scale, 1, now.hysteresis - 1};
    if (now.scale <= smallest) return {now.scale, 1, 0};
    return {std::max(now.scale / 2, smallest), 1, now.hysteresis};
  }
  if (now.good_steps < window) return {now.scale, now.good_steps + 1, now.hysteresis};
  return {std::min(now.scale * 2, kScaleMax), 1, static_cast<float>(options.hysteresis)};
}

}  // namespace pando
