// RepeatedDeaths recognises a process that died four times by the memory limit, or with the same
// exit code, while no step of the run became known: it would die again. Three deaths would prove
// less, because the known step may be older than the first one. Deaths that a person or chaos
// causes do not count. Fleet has one. Threads: none.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "node/fleet/process_group.h"
#include "node/scheduler_link.h"

namespace pando {

class RepeatedDeaths {
 public:
  // Call it at once for each unclean end.
  void OnExit(const ProcessExit& exit, SchedulerLink& link) {
    const bool may_pass = exit.kind() == ExitKind::kLeft || exit.kind() == ExitKind::kUnreached;
    if (may_pass || (exit.signal != 0 && !exit.is_out_of_memory)) return;
    link.PollEach(kAskAfterDeath);
    const std::string kind = exit.is_out_of_memory ? "memory" : std::to_string(exit.exit_code);
    const Step step = link.progress().step;
    Streak& streak = streaks_[exit.spec.name];
    if (streak.kind != kind || streak.step != step) streak = {kind, step, 0};
    ++streak.count;
  }
  bool AreHopeless(const std::string& name) const {
    const auto streak = streaks_.find(name);
    return streak != streaks_.end() && streak->second.count > kRepeatedDeathsMax;
  }

 private:
  // The interval at which we ask for progress while processes of the run die.
  static constexpr Micros kAskAfterDeath = std::chrono::milliseconds(100);
  static constexpr uint32_t kRepeatedDeathsMax = 3;
  struct Streak {
    std::string kind;
    Step step;  // as known at its deaths
    uint32_t count = 0;
  };
  std::map<std::string, Streak> streaks_;  // by the process's name
};

}  // namespace pando
