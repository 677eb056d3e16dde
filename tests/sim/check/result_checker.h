// ResultChecker: the metric rows, evaluations and weights that a run leaves behind (I1, I5, P31).
// Part of Checker.
#pragma once

#include <set>

#include "scheduler/journal.h"
#include "tests/sim/check/verdict.h"
#include "tests/sim/coverage.h"

namespace pando::sim {

class ResultChecker {
 public:
  // All outlive it.
  ResultChecker(const Truth& truth, Coverage& coverage, Verdict& verdict)
      : truth_(truth), plan_(truth.plan()), coverage_(coverage), verdict_(verdict) {}

  // Rows that a lost server takes with it may be missing from now on.
  void NoteMayLackRows() { may_lack_rows_ = true; }
  void OnStepMetrics(const StepMetrics& metrics);
  // `generation`: the journal's.
  void CheckReport(const Evaluate& request, uint32_t generation);
  void NoteAnswer(const EvaluationResult& result);
  void CheckEvaluation(const EvaluationSummary& summary, uint32_t generation);
  void OnFinalWeights(Version version, const FloatBuffer& flat);
  // The job is over: all of it must be there.
  void CheckEnd(const SchedulerState& state);
  Step next_row() const { return next_row_; }
  // The run goes on with a copy of its folder that lacks the rest.
  void GoOnWith(Step next_row, bool has_final_weights) {
    next_row_ = next_row;
    has_final_weights_ = has_final_weights;
  }
  bool has_final_weights() const { return has_final_weights_; }

 private:
  const Truth& truth_;
  const JobPlan& plan_;
  Coverage& coverage_;
  Verdict& verdict_;
  bool may_lack_rows_ = false;
  Step next_row_;
  std::set<Version> reported_;  // their reports were answered
  bool has_final_weights_ = false;
};

}  // namespace pando::sim
