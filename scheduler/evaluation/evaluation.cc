#include "scheduler/evaluation/evaluation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "plan/external_model.h"

namespace pando {
namespace {

bool IsAsciiLetterOrDigit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Returns "98.50 %", or "98.50 % (top 5: 99.90 %)" if there are more than five classes.
std::string AccuracyText(const EvaluationSummary& evaluation) {
  std::string text = fmt::format("{:.2f} %", 100 * evaluation.accuracy());
  if (evaluation.classes.size() > 5)
    text += fmt::format(" (top 5: {:.2f} %)", 100 * evaluation.top5_accuracy());
  return text;
}

}  // namespace

EvaluatedValues::EvaluatedValues(const Job& job)
    : has_accuracy(!IsExternal(job) || std::ranges::count(job.eval_sums, "correct") > 0),
      has_loss(!IsExternal(job) || std::ranges::count(job.eval_sums, "loss_sum") > 0),
      has_classes(!IsExternal(job)),
      metric(!job.eval_metric.empty() ? job.eval_metric
             : has_accuracy           ? "correct"
                                      : "loss_sum"),
      metric_index(std::ranges::find(job.eval_sums, metric) - job.eval_sums.begin()),
      is_lower_better(job.eval_mode == "min" || (job.eval_mode == "auto" && IsLoss(metric))) {}

double EvaluatedValues::Score(const EvaluationSummary& evaluation) const {
  const bool is_other = metric_index < evaluation.sums.size();
  const double value =
      metric == "correct"    ? Accuracy(evaluation)
      : metric == "loss_sum" ? Loss(evaluation)
      : is_other ? evaluation.sums[metric_index] / static_cast<double>(evaluation.sample_count)
                 : NAN;
  const double score = is_lower_better ? -value : value;
  return std::isnan(score) ? -std::numeric_limits<double>::infinity() : score;
}

std::vector<std::string> MeanNames(const Job& job) {
  std::vector<std::string> names;
  for (const std::string& sum : job.eval_sums) {
    std::string name = sum.substr(0, sum.size() - (sum.ends_with("_sum") ? 4 : 0));
    const bool is_reserved = name.empty() || name == "accuracy" || (name == "loss" && name == sum);
    const bool is_other = name != sum && std::ranges::count(job.eval_sums, name) > 0;
    if (is_reserved || is_other) name = sum + "_mean";
    std::ranges::replace_if(
        name, [](char c) { return c >= 0 && c != '_' && !IsAsciiLetterOrDigit(c); }, '_');
    names.push_back(std::move(name));
  }
  return names;
}

std::string EvaluationText(const Job& job, const EvaluationSummary& evaluation) {
  if (!IsExternal(job)) {
    return fmt::format("{0} accuracy {1}, {0} loss {2:.4f}", job.evaluated_on(),
                       AccuracyText(evaluation), EvaluatedValues().Loss(evaluation));
  }
  const std::vector<std::string> names = MeanNames(job);
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), evaluation.sums.size()); ++i) {
    text += fmt::format("{}{} {:.4f}", i == 0 ? "" : ", ", names[i],
                        evaluation.sums[i] / static_cast<double>(evaluation.sample_count));
  }
  return text;
}

std::optional<Version> StopVersion(const Job& job, std::span<const EvaluationSummary> evaluations) {
  if (!job.may_stop_early()) return std::nullopt;
  const EvaluatedValues values(job);
  std::optional<double> best;
  uint32_t without_gain = 0;
  for (const EvaluationSummary& evaluation : evaluations) {
    if (evaluation.stop_text) return evaluation.version;
    if (job.early_stop_patience == 0 || evaluation.sample_count == 0) continue;
    const double score = values.Score(evaluation);
    const bool is_better = !best || score - job.early_stop_min_delta > *best;
    without_gain = is_better ? 0 : without_gain + 1;
    if (is_better) best = score;
    if (without_gain == job.early_stop_patience) return evaluation.version;
  }
  return std::nullopt;
}

std::vector<Version> BestFirst(const Job& job, std::span<const EvaluationSummary> evaluations) {
  const EvaluatedValues values(job);
  std::vector<const EvaluationSummary*> ranked;
  for (const EvaluationSummary& evaluation : evaluations) ranked.push_back(&evaluation);
  std::ranges::stable_sort(
      ranked, std::ranges::greater(),
      [&](const EvaluationSummary* evaluation) { return values.Score(*evaluation); });
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
