// StepClock: how long a step usually takes, and so how long a worker that has nothing to do waits
// before it computes what others owe. Used by Helping. Threads: none.
#pragma once

#include <algorithm>
#include <optional>

#include "proto/outbox.h"

namespace pando {

class StepClock {
 public:
  static constexpr int kPatienceSteps = 3;
  static constexpr Micros kPatienceMin = std::chrono::milliseconds(100);
  static constexpr int kMemorySteps = 8;  // that the usual time looks back

  // Every shard is now known to have committed this version.  True if that is news. A worker that
  // looks now and then sees several steps at once.
  bool OnVersion(Micros now, Version version) {
    if (version_ == version) return false;
    if (version_ && version > *version_ && !is_disturbed_)
      Take((now - since_) / static_cast<int64_t>(version.value() - version_->value()));
    is_disturbed_ = !version_;  // the step under way was met in its middle
    version_ = version;
    since_ = now;
    return true;
  }
  // The step under way is no measure of others: a new view, a worker that needed help.
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
