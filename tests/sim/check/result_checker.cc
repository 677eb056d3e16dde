#include "tests/sim/check/result_checker.h"

#include <algorithm>

namespace pando::sim {

void ResultChecker::OnStepMetrics(const StepMetrics& metrics) {
  if (metrics.step < next_row_) return;  // by a scheduler that does not know of its successor
  if (metrics.step > next_row_) {
    if (!may_lack_rows_) verdict_.Fail("metric rows are left out");
    coverage_.Note(Event::kRowGap);
  }
  next_row_ = NextStep(metrics.step);
  if (truth_.is_tainted() || truth_.HasOwnBits()) return;
  const float* row =
      truth_.reference().ShardAt(plan_.metric_shard(), VersionMadeBy(metrics.step)).data() +
      plan_.metric_offset();
  if (row[kMetricLoss] != metrics.loss) verdict_.Fail("metrics differ from the serial run's");
}

// P31a: the function gets the sums of the whole test set.
void ResultChecker::CheckReport(const Evaluate& request, uint32_t generation) {
  if (request.part != EvaluationPart::kReport) return;
  coverage_.Note(Event::kReport);
  if (truth_.HasOwnBits() || truth_.IsTainted(generation)) return;
  double correct = 0;
  if (!request.sums.empty()) correct = request.sums[0];
  const uint64_t expected =
      EvaluateAll(plan_, truth_.reference().DigestAt(request.version), request.version)
          .correct_count;
  if (correct != static_cast<double>(expected)) verdict_.Fail("P31a: a report has other sums");
}

void ResultChecker::NoteAnswer(const EvaluationResult& result) {
  const uint64_t slices =
      (plan_.data.test_samples + kEvaluationSliceSamples - 1) / kEvaluationSliceSamples;
  if (result.slice == slices) reported_.insert(result.version);
}

void ResultChecker::CheckEvaluation(const EvaluationSummary& summary, uint32_t generation) {
  if (plan_.job.eval_report != ReportUse::kNone && !reported_.contains(summary.version))
    verdict_.Fail("P31a: no function got the evaluation of " + Text(summary.version));
  if (truth_.HasOwnBits() || truth_.IsTainted(generation)) return;
  const EvaluationTotals totals =
      EvaluateAll(plan_, truth_.reference().DigestAt(summary.version), summary.version);
  if (totals.correct_count == summary.correct_count && totals.loss_sum == summary.loss_sum &&
      totals.sample_count == summary.sample_count) {
    return;
  }
  verdict_.Fail("P31: the evaluation of " + Text(summary.version) + " is wrong");
}

void ResultChecker::OnFinalWeights(Version version, const FloatBuffer& flat) {
  has_final_weights_ = true;
  if (version != truth_.reference().final_version())
    verdict_.Fail("P32: the run ends with " + Text(version));
  if (version != plan_.steps.final_version()) coverage_.Note(Event::kEarlyStop);
  const bool is_right =
      SameBits(flat.span(), truth_.reference().FlatAt(truth_.reference().final_version()));
  if (!is_right && !truth_.HasOwnBits()) verdict_.Fail("I5: final weights differ");
}

void ResultChecker::CheckEnd(const SchedulerState& state) {
  if (!has_final_weights_) verdict_.Fail("ended without final weights");
  const uint64_t step_count = truth_.reference().final_version().value();
  if (next_row_.value() != step_count) {
    if (!may_lack_rows_) verdict_.Fail("the last metric rows are missing");
    coverage_.Note(Event::kRowGap);
  }
  std::set<Version> evaluated;
  for (const EvaluationSummary& summary : state.evaluations) {
    if (!evaluated.insert(summary.version).second) verdict_.Fail("a version is evaluated twice");
  }
  for (uint64_t v = 1; v <= step_count; ++v) {
    if (plan_.IsEvaluationDue(Version(v)) && !evaluated.contains(Version(v))) {
      verdict_.Fail("P31: " + Text(Version(v)) + " is not evaluated");
    }
  }
}

}  // namespace pando::sim
