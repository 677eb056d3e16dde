// EvaluationHistory keeps the run's evaluations and decides with which version the run ends (P32).
// The decision follows from the results alone: every life of the scheduler, and the serial trainer,
// decide alike.
#pragma once

#include <utility>
#include <vector>

#include "plan/job_plan.h"
#include "scheduler/evaluation/evaluation.h"

namespace pando {

class EvaluationHistory {
 public:
  // `evaluations`: those of earlier lives of the scheduler, ascending.
  EvaluationHistory(const JobPlan& plan, std::vector<EvaluationSummary> evaluations)
      : plan_(plan), all_(std::move(evaluations)) {
    Decide();
  }

  void Add(EvaluationSummary summary) {
    if (!all_.empty()) all_.back().DropDetails();
    all_.push_back(std::move(summary));
    Decide();
  }
  // A wrong gradient made the versions above `last_good` (P41).  Returns how many were dropped.
  size_t DropAfter(Version last_good) {
    const size_t dropped = std::erase_if(
        all_, [&](const EvaluationSummary& evaluation) { return evaluation.version > last_good; });
    Decide();
    return dropped;
  }

  const std::vector<EvaluationSummary>& all() const { return all_; }
  // The newest version that is evaluated.
  Version evaluated() const { return all_.empty() ? Version(0) : all_.back().version; }
  // The version that the run ends with, as far as is known: an early stop makes it a lower one.
  Version final_version() const { return final_version_; }
  bool is_over() const { return evaluated() == final_version_; }
  // The version to evaluate next.
  Version NextDue() const { return plan_.NextEvaluation(evaluated()); }

 private:
  void Decide() {
    final_version_ = StopVersion(plan_.job, all_).value_or(plan_.steps.final_version());
  }

  const JobPlan& plan_;
  std::vector<EvaluationSummary> all_;
  Version final_version_;
};

}  // namespace pando
