// RestartPolicy says when a process that died may restart. The pause doubles with every death, so
// that a process that fails at once is not restarted all the time. A life of ten seconds resets the
// pause. The restarts count until a life of a minute. Supervisor and Preload use it. Threads: none.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "node/fleet/exit_table.h"

namespace pando {

class RestartPolicy {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kPauseMin{100};
  static constexpr std::chrono::milliseconds kPauseMax{5000};
  static constexpr std::chrono::seconds kCalmLife{10};
  static constexpr std::chrono::seconds kGoodLife{60};

  explicit RestartPolicy(uint32_t restarts_max) : restarts_max_(restarts_max) {}
  void OnStart(TimePoint now) { started_at_ = now; }
  // Returns when to restart it; none if it has died too often. kInjected does not count. The life
  // of kUnreached resets nothing, since it never reached the scheduler.
  std::optional<TimePoint> OnDeath(TimePoint now, ExitKind kind) {
    const bool is_unreached = kind == ExitKind::kUnreached;
    const auto life = is_unreached ? TimePoint::duration::zero() : now - started_at_;
    if (life >= kCalmLife) pause_ = kPauseMin;
    if (life >= kGoodLife) death_count_ = 0;
    if (kind == ExitKind::kInjected) return now + kPauseMin;
    if (death_count_ >= restarts_max_) return std::nullopt;
    if (death_count_++ == 0) first_death_at_ = now;
    return now + std::exchange(pause_, std::min(2 * pause_, kPauseMax));
  }
  uint32_t restart_count() const { return death_count_; }  // without a good life in between
  TimePoint first_death_at() const { return first_death_at_; }

 private:
  uint32_t restarts_max_;
  uint32_t death_count_ = 0;  // without a good life in between
  std::chrono::milliseconds pause_ = kPauseMin;
  TimePoint started_at_{};
  TimePoint first_death_at_{};  // of the deaths that count
};

}  // namespace pando
