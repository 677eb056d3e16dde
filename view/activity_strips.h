// ActivityStrips keeps each process's activity in the last minutes, from repeated looks at the
// run's status. RunWatch uses it.
#pragma once

#include <deque>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "scheduler/run_status.h"

namespace pando {

// Times are seconds since the viewer began. Threads: none.
class ActivityStrips {
 public:
  static constexpr double kKeptSeconds = 120;

  void Look(double now, std::span<const RunStatus::Node> nodes);
  double last_look() const { return last_look_; }
  // Returns the spans that end after `time`: {"worker 1": [[from, to, "computing"], ...], ...}. A
  // span that began before it has only become longer, and comes without its activity.
  nlohmann::json Since(double time) const;

 private:
  struct Span {
    double from = 0;
    double to = 0;
    std::string activity;
  };
  static constexpr double kGapMax = 2;             // a longer gap between two looks remains a gap
  std::map<std::string, std::deque<Span>> spans_;  // by process
  double last_look_ = -1;
};

}  // namespace pando
