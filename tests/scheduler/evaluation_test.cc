#include "scheduler/evaluation/evaluation.h"

#include <doctest/doctest.h>

#include <cmath>

namespace pando {
namespace {

EvaluationResult ThreeSamples(std::vector<ConfusionCount> confusion) {
  return {.sample_count = 3, .confusion = std::move(confusion)};
}

TEST_CASE("slices add up to the counts of classes and the confusion matrix") {
  EvaluationSummary sum;
  AddSlice({.sample_count = 5,
            .correct_count = 3,
            .loss_sum = 0.5,
            .top5_count = 4,
            .confusion = {{0, 0, 2}, {0, 2, 1}, {2, 1, 1}, {2, 2, 1}}},
           3, &sum);
  AddSlice({.sample_count = 2,
            .correct_count = 1,
            .loss_sum = 0.25,
            .top5_count = 2,
            .confusion = {{0, 2, 1}, {2, 2, 1}}},
           3, &sum);
  CHECK(sum.sample_count == 7);
  CHECK(sum.correct_count == 4);
  CHECK(sum.top5_count == 6);
  CHECK(sum.loss_sum == 0.75);
  CHECK(sum.classes == std::vector<ClassScore>{{4, 2}, {0, 0}, {3, 2}});
  CHECK(sum.confusion == std::vector<uint64_t>{2, 0, 2, 0, 0, 0, 0, 1, 2});
}

TEST_CASE("above the limit of classes there is no matrix, but each class is counted") {
  for (const uint32_t class_count : {kConfusionClassesMax, kConfusionClassesMax + 1}) {
    EvaluationSummary sum;
    AddSlice(ThreeSamples({{7, 7, 1}, {class_count - 1, 0, 2}}), class_count, &sum);
    CHECK(sum.classes[7] == ClassScore{1, 1});
    CHECK(sum.classes.back() == ClassScore{2, 0});
    CHECK(sum.confusion.empty() == (class_count > kConfusionClassesMax));
  }
}

TEST_CASE("a result is sound if its counts are of the classes and of its samples") {
  CHECK(IsSound(ThreeSamples({{0, 1, 1}, {1, 1, 2}}), 2));
  CHECK(IsSound({}, 2));
  CHECK_FALSE(IsSound(ThreeSamples({{0, 1, 1}, {1, 1, 1}}), 2));
  CHECK_FALSE(IsSound(ThreeSamples({{0, 2, 3}}), 2));
  CHECK_FALSE(IsSound(ThreeSamples({{2, 0, 3}}), 2));
  CHECK_FALSE(IsSound(ThreeSamples({}), 2));
}

// Returns evaluations of a hundred samples each, every ten steps.
std::vector<EvaluationSummary> Evaluations(std::vector<uint64_t> correct_counts) {
  std::vector<EvaluationSummary> evaluations;
  for (size_t i = 0; i < correct_counts.size(); ++i)
    evaluations.push_back({Version(10 * (i + 1)), 100, correct_counts[i], 0});
  return evaluations;
}

std::optional<Version> FindStop(uint32_t patience, double min_delta,
                                std::vector<uint64_t> correct_counts) {
  Job job;
  job.early_stop_patience = patience;
  job.early_stop_min_delta = min_delta;
  return StopVersion(job, Evaluations(std::move(correct_counts)));
}

TEST_CASE("a run stops after N evaluations without improvement (P32)") {
  CHECK_FALSE(FindStop(0, 0, {5, 4, 3, 2, 1}));
  CHECK_FALSE(FindStop(2, 0, {}));
  CHECK_FALSE(FindStop(1, 0, {0}));
  CHECK(FindStop(1, 0, {5, 5}) == Version(20));
  CHECK_FALSE(FindStop(2, 0, {5, 4, 6, 5}));
  CHECK(FindStop(2, 0, {5, 4, 6, 5, 6}) == Version(50));
  CHECK(FindStop(2, 0, {5, 4, 6, 5, 6, 99}) == Version(50));  // what comes later changes nothing
}

TEST_CASE("a run stops with the first version with which the program ends it (P32)") {
  Job job;
  job.eval_report = ReportUse::kDecides;
  auto evaluations = Evaluations({5, 4, 3});
  evaluations[0].sample_count = 0;  // without a test set
  CHECK_FALSE(StopVersion(job, evaluations));
  evaluations[1].stop_text = evaluations[2].stop_text = "good enough";
  CHECK(StopVersion(job, evaluations) == Version(20));
}

TEST_CASE("a gain within min_delta is none") {
  CHECK(FindStop(2, 0.1, {50, 55, 60}) == Version(30));
  CHECK_FALSE(FindStop(2, 0.1, {50, 55, 61}));
  CHECK(FindStop(2, 0.1, {50, 55, 61, 62, 71}) == Version(50));
}

TEST_CASE("without a test set there is nothing to stop by") {
  Job job;
  job.early_stop_patience = 1;
  CHECK_FALSE(StopVersion(job, std::vector<EvaluationSummary>(3)));
}

TEST_CASE("the best version is the first of those with the best accuracy") {
  CHECK(BestFirst(Job(), {}).empty());
  const auto evaluations = Evaluations({3, 7, 5, 7});
  CHECK(BestFirst(Job(), evaluations) ==
        std::vector{Version(20), Version(40), Version(30), Version(10)});
}

Job ProgramJob(std::vector<std::string> sums) {
  Job job;
  job.model = job.dataset = "external";
  job.eval_sums = std::move(sums);
  return job;
}

TEST_CASE("without an accuracy the lowest loss is the best, and one that is no number the worst") {
  Job job = ProgramJob({"mae", "loss_sum"});
  auto evaluations = Evaluations({9, 0, 0, 0, 0});
  const double losses[] = {300, NAN, 200, 250, 200};
  for (size_t i = 0; i < 5; ++i) evaluations[i].loss_sum = losses[i];
  CHECK(BestFirst(job, evaluations) ==
        std::vector{Version(30), Version(50), Version(40), Version(10), Version(20)});
  job.early_stop_patience = 2;
  CHECK(StopVersion(job, evaluations) == Version(50));
  job.early_stop_min_delta = 1.5;
  CHECK(StopVersion(job, evaluations) == Version(30));
  job.eval_sums.push_back("correct");
  CHECK(BestFirst(job, evaluations).front() == Version(10));
}

TEST_CASE("any sum may score the versions, up or down") {
  Job job = ProgramJob({"correct", "f1", "error_loss"});
  auto evaluations = Evaluations({1, 2, 3});
  const double sums[][3] = {{1, 50, 70}, {2, 70, 60}, {3, 60, 80}};
  for (size_t i = 0; i < 3; ++i) evaluations[i].sums.assign(sums[i], sums[i] + 3);
  const auto best = [&](const char* metric, const char* mode) {
    job.eval_metric = metric;
    job.eval_mode = mode;
    return BestFirst(job, evaluations).front();
  };
  CHECK(best("", "auto") == Version(30));
  CHECK(best("", "min") == Version(10));
  CHECK(best("f1", "max") == Version(20));
  CHECK(best("f1", "min") == Version(10));
  CHECK(best("error_loss", "auto") == Version(20));
  CHECK(best("error_loss", "max") == Version(30));
  job.early_stop_patience = 1;
  job.early_stop_min_delta = 0.15;
  CHECK(StopVersion(job, evaluations) == Version(20));
  best("f1", "max");
  CHECK(StopVersion(job, evaluations) == Version(30));
}

TEST_CASE("a loss may score the versions of Pando's own models") {
  Job job;
  job.eval_metric = "loss_sum";
  auto evaluations = Evaluations({9, 1});
  evaluations[0].loss_sum = 2;
  evaluations[1].loss_sum = 1;
  CHECK(BestFirst(job, evaluations).front() == Version(20));
}

TEST_CASE("the text of an evaluation has all that was measured, under names that differ") {
  EvaluationSummary evaluation{Version(1), 10, 5, 20};
  CHECK(EvaluationText(Job(), evaluation) == "test accuracy 50.00 %, test loss 2.0000");
  evaluation.sums = {20, 5, 1, 2, 3};
  CHECK(EvaluationText(ProgramJob({"loss_sum", "correct", "mae_sum", "mae", "a_summary"}),
                       evaluation) ==
        "loss 2.0000, correct 0.5000, mae_sum_mean 0.1000, mae 0.2000, a_summary 0.3000");
}

}  // namespace
}  // namespace pando
