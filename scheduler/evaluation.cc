#include "scheduler/evaluation.h"

#include <algorithm>

#include "common/check.h"

namespace pando {

std::optional<Version> StopVersion(const Job& job, std::span<const EvaluationSummary> evaluations) {
  if (job.early_stop_patience == 0) return std::nullopt;
  std::optional<double> best;
  uint32_t without_gain = 0;
  for (const EvaluationSummary& evaluation : evaluations) {
    if (evaluation.sample_count == 0) return std::nullopt;  // there is no test set
    const bool is_better = !best || evaluation.accuracy() - job.early_stop_min_delta > *best;
    without_gain = is_better ? 0 : without_gain + 1;
    if (is_better) best = evaluation.accuracy();
    if (without_gain == job.early_stop_patience) return evaluation.version;
  }
  return std::nullopt;
}

std::vector<Version> BestFirst(std::span<const EvaluationSummary> evaluations) {
  std::vector<const EvaluationSummary*> ranked;
  for (const EvaluationSummary& evaluation : evaluations) ranked.push_back(&evaluation);
  std::ranges::stable_sort(ranked, std::ranges::greater(), &EvaluationSummary::correct_count);
  std::vector<Version> versions;
  for (const EvaluationSummary* evaluation : ranked) versions.push_back(evaluation->version);
  return versions;
}

bool IsSound(const EvaluationResult& result, uint32_t class_count) {
  uint64_t sample_count = 0;
  for (const ConfusionCount& c : result.confusion) {
    if (c.label >= class_count || c.predicted >= class_count) return false;
    sample_count += c.count;
  }
  return sample_count == result.sample_count;
}

void AddSlice(const EvaluationResult& slice, uint32_t class_count, EvaluationSummary* sum) {
  PANDO_CHECK(IsSound(slice, class_count));
  sum->sample_count += slice.sample_count;
  sum->correct_count += slice.correct_count;
  sum->top5_count += slice.top5_count;
  sum->loss_sum += slice.loss_sum;
  sum->sums.resize(std::max(sum->sums.size(), slice.sums.size()));
  for (size_t i = 0; i < slice.sums.size(); ++i) sum->sums[i] += slice.sums[i];
  sum->classes.resize(class_count);
  const bool has_matrix = class_count <= kConfusionClassesMax;
  sum->confusion.resize(has_matrix ? size_t{class_count} * class_count : 0);
  for (const ConfusionCount& c : slice.confusion) {
    sum->classes[c.label].sample_count += c.count;
    if (c.label == c.predicted) sum->classes[c.label].correct_count += c.count;
    if (has_matrix) sum->confusion[size_t{c.label} * class_count + c.predicted] += c.count;
  }
}

}  // namespace pando
