// Evaluations are the results of versions on the test set, summed over its slices (P31). The
// scheduler core and the serial trainer use them.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/job.h"
#include "proto/messages.h"

namespace pando {

// With more classes than this the confusion matrix is not kept, the counts of each class still are.
inline constexpr uint32_t kConfusionClassesMax = 100;

// Returns 0 if `all` is 0.
inline double Fraction(uint64_t count, uint64_t all) {
  return all == 0 ? 0 : static_cast<double>(count) / static_cast<double>(all);
}

struct ClassScore {  // over the test samples of one class
  uint64_t sample_count = 0;
  uint64_t correct_count = 0;
  double accuracy() const { return Fraction(correct_count, sample_count); }
  bool operator==(const ClassScore&) const = default;
};

struct EvaluationSummary {
  Version version;
  uint64_t sample_count = 0;
  uint64_t correct_count = 0;
  double loss_sum = 0;  // slices added in order, so equal for any number of workers
  uint64_t top5_count = 0;
  // Only a run's newest evaluation has these; they are dropped when the next one is done.
  std::vector<ClassScore> classes = {};
  std::vector<uint64_t> confusion = {};  // [label][predicted], row by row
  // Every evaluation of an external model has these, as the job's eval.sums names them.
  std::vector<double> sums = {};
  std::optional<std::string> stop_text = {};  // why the program ended the run with this version

  double accuracy() const { return Fraction(correct_count, sample_count); }
  double top5_accuracy() const { return Fraction(top5_count, sample_count); }
  void DropDetails() {
    classes.clear();
    confusion.clear();
  }
  bool operator==(const EvaluationSummary&) const = default;
};

// EvaluatedValues says which values the evaluations of a job have. A program's model has those that
// its eval.sums names.
struct EvaluatedValues {
  EvaluatedValues() = default;  // all
  explicit EvaluatedValues(const Job& job);
  // Not a number if the job has no such value.
  double Accuracy(const EvaluationSummary& e) const { return has_accuracy ? e.accuracy() : NAN; }
  double Top5Accuracy(const EvaluationSummary& e) const {
    return has_classes ? e.top5_accuracy() : NAN;
  }
  double Loss(const EvaluationSummary& e) const {  // the mean over the samples
    return has_loss ? e.loss_sum / static_cast<double>(e.sample_count) : NAN;
  }
  // A better version has a higher score, by eval.metric and eval.mode.
  double Score(const EvaluationSummary& evaluation) const;

  bool has_accuracy = true;
  bool has_loss = true;
  bool has_classes = true;         // and the top-5 accuracy
  std::string metric = "correct";  // the sum that scores a version
  size_t metric_index = 0;         // in the sums of a program that names it
  bool is_lower_better = false;
};

// The names of the means of a program's sums, in the order of eval.sums: "loss" of loss_sum. All
// differ, and fit into a row of metrics.csv.
std::vector<std::string> MeanNames(const Job& job);

// "test accuracy 98.50 %, test loss 0.0512", or a program's means: "loss 0.0712, correct 0.9750".
std::string EvaluationText(const Job& job, const EvaluationSummary& evaluation);

// P32. The version that the run ends with: the first with which the program ended it, or after
// job.early_stop_patience evaluations in a row that did not improve the score of those before by
// more than job.early_stop_min_delta. None if the run continues. `evaluations`: all of the run so
// far, ascending.
std::optional<Version> StopVersion(const Job& job, std::span<const EvaluationSummary> evaluations);
// Evaluated versions, those of the best score first, the earliest first of equal ones.
std::vector<Version> BestFirst(const Job& job, std::span<const EvaluationSummary> evaluations);

// Whether the result's counts are of `class_count` classes and add up to its samples.
bool IsSound(const EvaluationResult& result, uint32_t class_count);
// Adds the next slice.  REQUIRES: IsSound(slice, class_count).
void AddSlice(const EvaluationResult& slice, uint32_t class_count, EvaluationSummary* sum);

}  // namespace pando
