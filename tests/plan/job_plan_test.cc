#include "plan/job_plan.h"

#include <doctest/doctest.h>

#include <vector>

namespace pando {
namespace {

// Epochs of ten steps.
JobPlan MakePlan(Job job) {
  job.steps = 25;
  job.global_batch = 4;
  job.micro_batches = 1;
  return JobPlan(job, {.train_samples = 40}, TensorLayout({MetricTensorSpec()}));
}

std::vector<uint64_t> ListDue(const JobPlan& plan) {
  std::vector<uint64_t> due;
  for (uint64_t v = 0; v <= plan.steps.step_count(); ++v) {
    if (plan.IsEvaluationDue(Version(v))) due.push_back(v);
  }
  return due;
}

// The same versions, one from the other.
std::vector<uint64_t> ListNext(const JobPlan& plan) {
  std::vector<uint64_t> due;
  for (Version v(0); v < plan.steps.final_version();) {
    v = plan.NextEvaluation(v);
    due.push_back(v.value());
  }
  return due;
}

TEST_CASE("evaluations are N epochs apart, N steps apart, or only at the end") {
  struct Case {
    uint64_t every_epochs;
    uint64_t every_steps;
    std::vector<uint64_t> due;
  };
  for (const Case& c : {Case{1, 0, {10, 20, 25}}, Case{2, 0, {20, 25}}, Case{0, 7, {7, 14, 21, 25}},
                        Case{0, 5, {5, 10, 15, 20, 25}}, Case{0, 100, {25}}, Case{0, 0, {25}}}) {
    Job job;
    job.eval_every_epochs = c.every_epochs;
    job.eval_every_steps = c.every_steps;
    const JobPlan plan = MakePlan(job);
    CAPTURE(c.every_steps);
    CHECK(ListDue(plan) == c.due);
    CHECK(ListNext(plan) == c.due);
  }
}

TEST_CASE("what a run may end with, and what is to be the best, is stored") {
  Job job;
  job.eval_every_epochs = 1;
  job.snapshot_every = 0;
  CHECK_FALSE(MakePlan(job).MayBeFinal(Version(10)));
  CHECK_FALSE(MakePlan(job).IsSnapshotDue(Version(10)));
  CHECK(MakePlan(job).MayBeFinal(Version(25)));
  Job best = job;
  best.snapshot_best = true;
  CHECK_FALSE(MakePlan(best).MayBeFinal(Version(10)));
  CHECK(MakePlan(best).IsSnapshotDue(Version(10)));
  CHECK_FALSE(MakePlan(best).IsSnapshotDue(Version(5)));
  job.early_stop_patience = 1;
  CHECK(MakePlan(job).MayBeFinal(Version(10)));
  CHECK(MakePlan(job).IsSnapshotDue(Version(20)));
  CHECK_FALSE(MakePlan(job).IsSnapshotDue(Version(0)));
}

}  // namespace
}  // namespace pando
