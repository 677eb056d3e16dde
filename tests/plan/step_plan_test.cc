#include "plan/step_plan.h"

#include <doctest/doctest.h>

namespace pando {
namespace {

TEST_CASE("a short last batch keeps its true size") {
  StepPlan plan({.sample_count = 10, .global_batch = 4, .micro_batch_count = 3, .epoch_count = 2});
  CHECK(plan.steps_per_epoch() == 3);
  CHECK(plan.step_count() == 6);
  CHECK(plan.SampleCount(Step(2)) == 2);
  CHECK(plan.SampleCount(Step(3)) == 4);
  CHECK(plan.Epoch(Step(2)) == 0);
  CHECK(plan.Epoch(Step(3)) == 1);
  CHECK(plan.Tree(Step(2)).PresentLeaves().size() == 2);
  CHECK(plan.micro_batch_samples_max() == 2);
}

TEST_CASE("a dropped last batch shortens the epoch, unless it is the only one") {
  StepPlan plan(
      {.sample_count = 10, .global_batch = 4, .last_batch = LastBatch::kDrop, .epoch_count = 1});
  CHECK(plan.steps_per_epoch() == 2);
  StepPlan tiny(
      {.sample_count = 3, .global_batch = 4, .last_batch = LastBatch::kDrop, .step_count = 5});
  CHECK(tiny.steps_per_epoch() == 1);
  CHECK(tiny.SampleCount(Step(4)) == 3);
}

TEST_CASE("a step reads the version that it updates, or with staleness the one before") {
  const StepPlan synchronous({.step_count = 9});
  CHECK(synchronous.VersionReadBy(Step(4)) == Version(4));
  CHECK(synchronous.LastStepReading(Version(4)) == Step(4));
  CHECK(synchronous.versions_kept() == 2);
  const StepPlan stale({.step_count = 9, .staleness = 1});
  CHECK(stale.VersionReadBy(Step(0)) == Version(0));
  CHECK(stale.VersionReadBy(Step(1)) == Version(0));
  CHECK(stale.VersionReadBy(Step(4)) == Version(3));
  CHECK(stale.LastStepReading(Version(3)) == Step(4));
  CHECK(stale.versions_kept() == 4);
}

TEST_CASE("micro-batches part the batch without gap or overlap") {
  for (uint64_t batch : {1u, 5u, 7u, 128u}) {
    for (uint32_t n = 1; n <= batch && n <= 9; ++n) {
      StepPlan plan(
          {.sample_count = 300, .global_batch = batch, .micro_batch_count = n, .epoch_count = 1});
      for (Step step(0); step.value() < plan.step_count(); step = NextStep(step)) {
        uint64_t next = step.value() * batch;
        for (uint32_t m = 0; m < n; ++m) {
          SampleRange range = plan.Samples(step, MicroBatch(m));
          CHECK(range.first == next);
          CHECK(range.count() <= plan.micro_batch_samples_max());
          CHECK((range.count() > 0) == plan.Tree(step).IsPresent(MicroBatch(m)));
          next = range.last;
        }
        CHECK(next == step.value() * batch + plan.SampleCount(step));
      }
    }
  }
}

}  // namespace
}  // namespace pando
