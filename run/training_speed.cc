#include "run/training_speed.h"

#include <algorithm>
#include <limits>

namespace pando {

// How long to wait for the first reports, which a lane sent together while the scheduler was away.
constexpr double kSettleSeconds = 0.5;

// The next window begins at the last row, since the run continued without a scheduler. Until the
// window is complete, its speed is the last known one.
void TrainingSpeed::TakeOver(const MetricsRow& last, double gap_seconds) {
  CountSamples(Version(last.step));
  window_start_ = {.steps = last.step, .samples = sample_count_};
  if (last.images_per_second_mean > 0) {
    window_start_.training_seconds =
        static_cast<double>(sample_count_) / last.images_per_second_mean;
  }
  past_seconds_ = window_start_.training_seconds + gap_seconds;
  window_ = {.images_per_second = last.images_per_second,
             .step_ms = last.step_ms,
             .data_stall_ms = last.data_stall_ms,
             .exposed_sync_ms = last.exposed_sync_ms};
  has_whole_window_ = last.images_per_second > 0;
  settled_at_ = std::numeric_limits<double>::infinity();  // set by the first report
}

void TrainingSpeed::OnStep(const TrainingReach& reach, double data_seconds, double sync_seconds) {
  CountSamples(reach.made);
  seconds_ = reach.seconds;
  settled_at_ = std::min(settled_at_, seconds_ + kSettleSeconds);
  if (seconds_ < settled_at_ && has_whole_window_) return;
  MoveWindow({.steps = counted_.value(),
              .samples = sample_count_,
              .training_seconds = seconds_,
              .data_seconds = data_seconds,
              .sync_seconds = sync_seconds});
}

void TrainingSpeed::CountSamples(Version made) {
  for (; counted_ < made; counted_ = Version(counted_.value() + 1))
    sample_count_ += steps_.SampleCount(StepUpdating(counted_));
}

// Moves the window to `now`. It is longer than the interval of heartbeats, which report the waits.
void TrainingSpeed::MoveWindow(const Totals& now) {
  constexpr double kWindowSeconds = 1;
  const Totals& start = window_start_;
  const double seconds = now.training_seconds - start.training_seconds;
  const bool is_whole = seconds >= kWindowSeconds;
  if (seconds <= 0 || now.steps <= start.steps || (has_whole_window_ && !is_whole)) return;
  const double ms_per_step = 1000 / static_cast<double>(now.steps - start.steps);
  window_ = {.images_per_second = static_cast<double>(now.samples - start.samples) / seconds,
             .step_ms = ms_per_step * seconds,
             .data_stall_ms = ms_per_step * (now.data_seconds - start.data_seconds),
             .exposed_sync_ms = ms_per_step * (now.sync_seconds - start.sync_seconds)};
  if (!is_whole) return;
  has_whole_window_ = true;
  window_start_ = now;
}

}  // namespace pando
