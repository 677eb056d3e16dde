// Evaluations: the results of a version on the test set, summed over its slices (P31). Used by the
// scheduler core and the serial trainer. Threads: none; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/job.h"
#include "proto/messages.h"

namespace pando {

// With more classes than this the confusion matrix is not kept, the counts of each class still are.
inline constexpr uint32_t kConfusionClassesMax = 100;

// 0 of none.
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
  // Of a run's newest evaluation alone; dropped when the next one is done.
  std::vector<ClassScore> classes = {};
  std::vector<uint64_t> confusion = {};  // [label][predicted], row by row

  double accuracy() const { return Fraction(correct_count, sample_count); }
  double top5_accuracy() const { return Fraction(top5_count, sample_count); }
  void DropDetails() {
    classes.clear();
    confusion.clear();
  }
};

// P32. The version that the run ends with: the first after job.early_stop_patience evaluations in a
// row that did not improve the accuracy of those before by more than job.early_stop_min_delta. None
// if the run continues. `evaluations`: all of the run so far, ascending.
std::optional<Version> StopVersion(const Job& job, std::span<const EvaluationSummary> evaluations);
// Evaluated versions, those of the best accuracy first, the earliest first of equal ones.
std::vector<Version> BestFirst(std::span<const EvaluationSummary> evaluations);

// Whether the result's counts are of `class_count` classes and add up to its samples.
bool IsSound(const EvaluationResult& result, uint32_t class_count);
// Adds the next slice.  REQUIRES: IsSound(slice, class_count).
void AddSlice(const EvaluationResult& slice, uint32_t class_count, EvaluationSummary* sum);

}  // namespace pando
