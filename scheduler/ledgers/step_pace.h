// StepPace: how many steps the run makes in a given time, as the lanes report. The scheduler core
// uses it to name a step that is a little ahead. Threads: none.
#pragma once

#include <cmath>

#include "proto/outbox.h"

namespace pando {

class StepPace {
 public:
  void OnCommitted(Micros now, Version committed) {
    const Micros since = now - at_;
    if (at_ != Micros(0) && since < kInterval) return;
    if (at_ != Micros(0) && committed >= committed_) {
      const double steps = static_cast<double>(committed.value() - committed_.value());
      steps_per_us_ = (steps_per_us_ + steps / static_cast<double>(since.count())) / 2;
    }
    at_ = now;
    committed_ = committed;
  }
  // At least 1.
  uint64_t StepsWithin(Micros time) const {
    return 1 + static_cast<uint64_t>(std::ceil(steps_per_us_ * static_cast<double>(time.count())));
  }

 private:
  static constexpr Micros kInterval = std::chrono::milliseconds(50);
  Micros at_{0};
  Version committed_;
  double steps_per_us_ = 0;
};

}  // namespace pando
