// Verification (P41), as the scheduler runs it.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/scheduler/storing_fixture.h"

namespace pando {
namespace {

JobPlan VerifyingPlan(uint32_t workers) {
  JobPlan plan = StoringPlan(workers);
  plan.job.verify_every = 1;
  return plan;
}

void Report(StoringFixture& f, uint64_t who, uint64_t step, uint32_t m, uint64_t hash) {
  f.From(who, GradientHashes{{{Step(step), MicroBatch(m), hash}}});
}

// Worker 20, whose gradient of step 6 is not what worker 21 makes of it.
void DisputeWithOneWhoLeft(StoringFixture& f) {
  f.StartAll();
  f.MakeTo(7);
  Report(f, 20, 6, 0, 5);
  f.Exit(20, Role::kWorker);
  Report(f, 21, 6, 0, 6);
}

TEST_CASE("a snapshot waits until its steps are verified") {
  StoringFixture f(VerifyingPlan(2));
  f.StartAll();
  f.MakeTo(10);
  f.Store(10);
  CHECK(f.recorder.snapshots.empty());
  for (uint64_t step = 0; step < 10; ++step) {
    for (uint32_t m = 0; m < 8; ++m) {
      Report(f, 20, step, m, 5);
      Report(f, 21, step, m, 5);
    }
  }
  CHECK(f.recorder.snapshots.size() == 1);
  Report(f, 21, 9, 7, 5);  // repeated
  CHECK(f.recorder.LastTo<GradientHashesAck>(Incarnation(21))->below == Step(10));
}

TEST_CASE("of two workers that differ a third tells which is wrong, and it is drained") {
  StoringFixture f(VerifyingPlan(3));
  f.StartAll();
  f.MakeTo(7);
  Report(f, 20, 6, 0, 5);
  Report(f, 21, 6, 0, 6);
  CHECK(f.recorder.HasEvent("dispute"));
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.scheduler->view().owners[0].worker == f.NodeFor(22));
  Report(f, 20, 6, 0, 5);  // a party's word does not count
  CHECK_FALSE(f.recorder.HasEvent("wrong-gradient"));
  Report(f, 22, 6, 0, 5);
  CHECK(f.recorder.HasEvent("wrong-gradient"));
  CHECK(f.NodeFor(21) == kUnknownNode);
  REQUIRE(f.recorder.LastTo<Stop>(Incarnation(21)) != nullptr);
  CHECK(f.recorder.LastTo<Stop>(Incarnation(21))->reason == StopReason::kDrained);
  CHECK(f.scheduler->view().generation == 1);
}

TEST_CASE("of two workers the one that errs once is found by the replay") {
  StoringFixture f(VerifyingPlan(2));
  f.StartAll();
  f.MakeTo(7);
  Report(f, 20, 6, 0, 5);
  Report(f, 21, 6, 0, 6);
  Report(f, 20, 6, 0, 6);
  CHECK(f.NodeFor(20) == kUnknownNode);
  CHECK(f.CountShares(21) == 8);
}

TEST_CASE("what was made of a wrong gradient is neither kept nor restored") {
  StoringFixture f(VerifyingPlan(3));
  f.StartAll();
  f.MakeTo(20);
  f.Wait(std::chrono::seconds(3));  // no message arrives: patience ends
  f.Store(10);
  f.Store(20);
  REQUIRE(f.recorder.snapshots.size() == 2);
  f.MakeTo(30);
  Report(f, 20, 25, 0, 5);
  Report(f, 21, 25, 0, 6);
  CHECK(f.scheduler->view().restore.version == Version(20));
}

TEST_CASE("a wrong gradient is no more accepted when the worker that made it has left") {
  StoringFixture f(VerifyingPlan(3));
  DisputeWithOneWhoLeft(f);
  CHECK(f.recorder.HasEvent("dispute"));
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.scheduler->view().owners[0].worker == f.NodeFor(22));
  Report(f, 22, 6, 0, 6);
  REQUIRE(f.recorder.events.back().name == "wrong-gradient");
  CHECK(f.recorder.events.back().text.starts_with("worker 0 (process 120 on h)"));
  CHECK(f.NodeFor(21) != kUnknownNode);
}

TEST_CASE("the one worker that is left of two judges, though its word comes after the version") {
  StoringFixture f(VerifyingPlan(2));
  DisputeWithOneWhoLeft(f);
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.CountShares(21) == 8);
  f.MakeTo(7);
  f.Wait(milliseconds(100));
  CHECK_FALSE(f.recorder.HasEvent("wrong-gradient"));
  Report(f, 21, 6, 0, 6);
  CHECK(f.recorder.HasEvent("wrong-gradient"));
}

TEST_CASE("an evaluation of what a wrong gradient made does not outlive the dispute") {
  StoringFixture f(VerifyingPlan(2));
  f.StartAll();
  const uint64_t last = f.plan.steps.step_count();
  f.MakeTo(last);
  REQUIRE(f.recorder.LastTo<pando::Evaluate>(Incarnation(20)) != nullptr);
  const pando::Evaluate request = *f.recorder.LastTo<pando::Evaluate>(Incarnation(20));
  f.Exit(11, Role::kServer);  // the rollback waits for it
  Report(f, 20, 6, 0, 5);
  Report(f, 21, 6, 0, 6);
  CHECK(f.scheduler->view().generation == 0);
  f.From(20, EvaluationResult{.version = request.version,
                              .slice = request.slice,
                              .sample_count = 100,
                              .confusion = {{0, 0, 100}}});
  CHECK(f.recorder.evaluations.empty());
  f.Wait(milliseconds(1500));
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
}

TEST_CASE("a dispute survives the scheduler, and so does what is owed to it") {
  StoringFixture f(VerifyingPlan(3));
  f.StartAll();
  f.MakeTo(7);
  f.Exit(11, Role::kServer);  // the rollback waits for it
  Report(f, 20, 6, 0, 5);
  Report(f, 21, 6, 0, 6);
  REQUIRE(f.journal.state->verification.open_dispute);
  f.StartScheduler();
  f.Wait(milliseconds(1500));
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.scheduler->view().owners[0].worker == f.NodeFor(22));
  f.StartScheduler();
  f.Wait(milliseconds(100));
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.scheduler->view().owners[0].worker == f.NodeFor(22));
  Report(f, 22, 6, 0, 6);
  CHECK(f.recorder.HasEvent("wrong-gradient"));
  CHECK(f.NodeFor(20) == kUnknownNode);
  CHECK_FALSE(f.journal.state->verification.open_dispute);
}

TEST_CASE("a judge is of the parties' kind (P40)") {
  StoringFixture f(VerifyingPlan(3));
  for (uint64_t i = 0; i < 2; ++i) f.Add(10 + i, Role::kServer);
  for (uint64_t i = 0; i < 3; ++i) {
    f.Join(20 + i, Role::kWorker);
    f.From(20 + i, Ready{.probe_hash = i == 2 ? 2u : 1u, .data_fingerprint = 42});
  }
  f.MakeTo(7);
  Report(f, 20, 6, 0, 5);
  Report(f, 22, 6, 0, 7);  // of another kind
  CHECK_FALSE(f.recorder.HasEvent("dispute"));
  Report(f, 21, 6, 0, 6);
  CHECK(f.recorder.HasEvent("dispute"));
  CHECK(f.scheduler->view().owners[0].worker == f.NodeFor(20));
  Report(f, 22, 6, 0, 7);
  CHECK_FALSE(f.recorder.HasEvent("wrong-gradient"));
  Report(f, 20, 6, 0, 6);
  CHECK(f.recorder.HasEvent("wrong-gradient"));
}

}  // namespace
}  // namespace pando
