// StepClock measures how long a step usually takes, and so how long an idle worker waits before it
// computes micro-batches of others. Threads: none.
#pragma once

#include <algorithm>
#include <optional>

#include "common/clock.h"
#include "common/ids.h"

namespace pando {

class StepClock {
 public:
  static constexpr int kPatienceSteps = 3;
  static constexpr Micros kPatienceMin = std::chrono::milliseconds(100);
  static constexpr int kMemorySteps = 8;  // over which the usual time is taken

  // Every shard is now known to have committed this version.  True if the version is new. A worker
  // that asks from time to time sees several steps at once.
  bool OnVersion(Micros now, Version version) {
    if (version_ == version) return false;
    if (version_ && version > *version_ && !is_disturbed_)
      Take((now - since_) / static_cast<int64_t>(version.value() - version_->value()));
    is_disturbed_ = !version_;  // the current step had begun before
    version_ = version;
    since_ = now;
    return true;
  }
  // The current step does not count: there was a new view, or a worker needed help.
  void Disturb() { is_disturbed_ = true; }

  // None before one step has been measured.
  std::optional<Micros> usual() const { return usual_; }
  // How long to wait for others; none before one step has been measured.
  std::optional<Micros> patience() const {
    if (!usual_) return std::nullopt;
    return std::max(kPatienceSteps * *usual_, kPatienceMin);
  }

 private:
  void Take(Micros time) { usual_ = usual_ ? *usual_ + (time - *usual_) / kMemorySteps : time; }

  std::optional<Version> version_;
  Micros since_{0};
  bool is_disturbed_ = false;
  std::optional<Micros> usual_;
};

}  // namespace pando
