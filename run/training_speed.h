// TrainingSpeed measures training's speed, over the last second and on average. RunRecorder uses
// it.
#pragma once

#include <cstdint>

#include "common/ids.h"
#include "plan/step_plan.h"
#include "run/output/metrics_file.h"

namespace pando {

// The progress of training when a step is reported. Reports arrive in batches, and by the hundred
// after the scheduler was away.
struct TrainingReach {
  Version made;        // includes steps that are not reported yet
  double seconds = 0;  // training time, in all lives of the scheduler
};

// Threads: none.
class TrainingSpeed {
 public:
  explicit TrainingSpeed(const StepPlan& steps) : steps_(steps) {}

  // Continues `gap_seconds` after `last`, the newest row. The run trained during the gap.
  void TakeOver(const MetricsRow& last, double gap_seconds);
  // The waits are sums over this life: all threads' waits for samples, one thread's for parameters.
  void OnStep(const TrainingReach& reach, double data_seconds, double sync_seconds);
  // Takes the end: no further step follows, after `seconds` of training in all lives.
  void OnEnd(double seconds) { seconds_ = seconds; }

  bool has_trained() const { return seconds_ > past_seconds_; }  // in this life
  double past_seconds() const { return past_seconds_; }
  double own_seconds() const { return seconds_ - past_seconds_; }
  double images_per_second() const {  // the mean over the run
    return seconds_ <= 0 ? 0 : static_cast<double>(sample_count_) / seconds_;
  }
  // Returns the row's values for the window, which is the last second or more of training.
  const MetricsRow& window() const { return window_; }

 private:
  struct Totals {
    uint64_t steps = 0;
    uint64_t samples = 0;
    double training_seconds = 0;
    double data_seconds = 0;
    double sync_seconds = 0;
  };
  void CountSamples(Version made);
  void MoveWindow(const Totals& now);

  const StepPlan steps_;
  Version counted_;  // the steps below this version are counted in:
  uint64_t sample_count_ = 0;
  double past_seconds_ = 0;
  double seconds_ = 0;
  Totals window_start_;
  bool has_whole_window_ = false;
  // Seconds of training before which reports from the time without a scheduler may still arrive.
  double settled_at_ = 0;
  MetricsRow window_;
};

}  // namespace pando
