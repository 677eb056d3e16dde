// RunMetrics has a run's figures for Prometheus. RunWatch uses it; docs/run-folder.md lists them.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/step_plan.h"
#include "view/fault_list.h"
#include "view/run_history.h"
#include "view/wire_metrics.h"

namespace pando {

// Counters count the entries of the run's files, from their first row. So a viewer that starts
// later, or again, shows the same values, and the scheduler's restart resets none. Threads: one;
// other threads may read the registry.
class RunMetrics {
 public:
  // `run` is the value of each metric's label "run". The registry outlives this object.
  RunMetrics(prometheus::Registry& registry, const std::string& run);

  // Takes a row of metrics.csv. `plan` says how many samples a step has.
  // `logged`: the names of a step's further means.
  void OnRow(const CsvRow& row, const std::vector<std::string>& logged, const StepPlan& plan);
  void OnEvent(const nlohmann::json& event);
  void OnFault(const FaultList::News& news);
  // Takes notice that the run's files begin again (`--force`).
  void OnRestart() { last_step_ = last_elapsed_ = 0; }
  void OnStatus(const RunStatus& status);
  void OnNoStatus();
  // Sets whether the run has ended; `pando resume` continues it.
  void OnEnd(bool has_ended) { complete_.Set(has_ended ? 1 : 0); }

 private:
  static constexpr std::array<const char*, 3> kRoles{"scheduler", "server", "worker"};
  static constexpr std::array<const char*, 5> kStates{"starting", "ready", "draining", "leaving",
                                                      "suspect"};

  void Show(const char* name, const char* help, double value, prometheus::Gauge** gauge,
            prometheus::Labels labels = {});

  prometheus::Counter& steps_;
  prometheus::Histogram& step_seconds_;
  prometheus::Counter& samples_;
  prometheus::Counter& stall_seconds_;
  prometheus::Counter& faults_;
  prometheus::Counter& rollbacks_;
  prometheus::Histogram& recovery_seconds_;
  prometheus::Gauge& exposed_ratio_;
  struct Learning {
    prometheus::Registry& registry;
    std::string run;
    // These are null until there is a value: a program may give none.
    prometheus::Gauge* loss = nullptr;
    prometheus::Gauge* accuracy = nullptr;
    std::map<std::string, prometheus::Gauge*> logged;  // by name
  };
  Learning learning_;
  prometheus::Gauge& versions_behind_;
  struct Answer {  // the gauges about the scheduler's answer
    prometheus::Gauge& waiting;
    prometheus::Gauge& stalled_seconds;
    prometheus::Gauge& up;
  };
  Answer answer_;
  prometheus::Gauge& complete_;
  std::array<std::array<prometheus::Gauge*, kStates.size()>, kRoles.size()> members_{};
  WireMetrics wire_;
  double last_step_ = 0;     // of the newest row
  double last_elapsed_ = 0;  // s
};

}  // namespace pando
