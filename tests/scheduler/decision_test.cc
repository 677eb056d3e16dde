// Early stop (P32): what the scheduler hands out before a result is known, and what it makes of it.
#include <doctest/doctest.h>

#include "tests/scheduler/scheduler_fixture.h"

namespace pando {
namespace {

// Evaluated every ten steps; ends with the first version whose accuracy is no better.
JobPlan DecidingPlan() {
  JobPlan plan = MakePlan(2, 2);
  plan.job.eval_every_epochs = 0;
  plan.job.eval_every_steps = 10;
  plan.job.early_stop_patience = 1;
  return plan;
}

struct DecidingFixture : Fixture {
  explicit DecidingFixture(const JobPlan& decides = DecidingPlan()) : Fixture(decides) {
    StartAll();
  }

  // Makes all steps up to this version, and tells how many of its test samples are right.
  void Evaluate(uint64_t version, uint64_t correct_count) {
    Commit(version);
    Answer(version, correct_count);
  }
  void Answer(uint64_t version, uint64_t correct_count) {
    const auto* request = recorder.LastTo<pando::Evaluate>(Incarnation(20));
    REQUIRE(request != nullptr);
    REQUIRE(request->version == Version(version));
    From(20, EvaluationResult{.version = Version(version),
                              .slice = 0,
                              .sample_count = 100,
                              .correct_count = correct_count,
                              .confusion = {{0, 0, 100}}});
  }
  // How many steps' scalars server 10 has received.
  size_t ToldSteps() {
    const Scalars* scalars = recorder.LastTo<Scalars>(Incarnation(10));
    return scalars == nullptr ? 0 : scalars->steps.size();
  }
};

TEST_CASE("scalars end with the next evaluation until its result is known") {
  DecidingFixture f;
  f.From(10, ScalarsRequest{Step(0)});
  CHECK(f.ToldSteps() == 10);
  f.Commit(10);
  f.From(10, ScalarsRequest{Step(0)});
  CHECK(f.ToldSteps() == 10);
  f.Answer(10, 50);
  CHECK(f.ToldSteps() == 20);  // without a request
  CHECK(f.journal.state->evaluations.size() == 1);
  f.Evaluate(20, 51);
  CHECK(f.ToldSteps() == 30);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
}

TEST_CASE("scalars of the next block are not handed out before it is begun") {
  DecidingFixture f;
  f.From(10, ScalarsRequest{Step(kScalarsPerBlock)});
  CHECK(f.ToldSteps() == 0);
}

TEST_CASE("the run ends with the version that decides") {
  DecidingFixture f;
  f.Evaluate(10, 50);
  f.Evaluate(20, 50);
  CHECK(f.scheduler->final_version() == Version(20));
  CHECK(f.scheduler->phase() == Scheduler::Phase::kCollecting);
  CHECK(f.recorder.HasEvent("early-stop"));
  f.From(10, ScalarsRequest{Step(0)});
  CHECK(f.ToldSteps() == 20);
  for (const ShardPlacement& placement : f.scheduler->view().shards) {
    const auto* pull = f.recorder.LastTo<Pull>(placement.primary.incarnation);
    REQUIRE(pull != nullptr);
    CHECK(pull->items[0].version == Version(20));
  }
}

TEST_CASE("another life of the scheduler decides alike") {
  DecidingFixture f;
  f.Evaluate(10, 50);
  f.Commit(20);
  SUBCASE("before the result") {
    f.StartScheduler();
    for (uint64_t who : {10, 11, 20, 21}) f.From(who, Heartbeat{});
    f.Wait(milliseconds(50));
    CHECK(f.scheduler->final_version() == f.plan.steps.final_version());
    f.From(10, ScalarsRequest{Step(0)});
    CHECK(f.ToldSteps() == 20);
    f.Evaluate(20, 50);
  }
  SUBCASE("after it") {
    f.Answer(20, 50);
    f.StartScheduler();
    for (uint64_t who : {10, 11, 20, 21}) f.From(who, Heartbeat{});
    f.Wait(milliseconds(50));
    f.Commit(20);
  }
  CHECK(f.scheduler->final_version() == Version(20));
  CHECK(f.scheduler->phase() == Scheduler::Phase::kCollecting);
}

TEST_CASE("a rollback after the decision makes the run end with the same version") {
  DecidingFixture f;
  f.Evaluate(10, 50);
  f.Evaluate(20, 50);
  for (uint64_t server : {10, 11}) f.Exit(server, Role::kServer);
  for (uint64_t server : {12, 13}) f.Add(server, Role::kServer);
  f.Wait(milliseconds(1500));
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  f.From(12, ScalarsRequest{Step(0)});
  CHECK(f.recorder.LastTo<Scalars>(Incarnation(12))->steps.size() == 20);
  f.Commit(20);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kCollecting);
  CHECK(f.recorder.evaluations.size() == 2);
}

// The program's function gets each evaluation, and decides.
JobPlan ReportingPlan(ReportUse use, uint64_t test_samples = 100) {
  JobPlan plan = DecidingPlan();
  plan.job.early_stop_patience = 0;
  plan.job.eval_report = use;
  plan.data.test_samples = test_samples;
  return plan;
}

struct ReportingFixture : DecidingFixture {
  explicit ReportingFixture(const JobPlan& plan_in = ReportingPlan(ReportUse::kDecides))
      : DecidingFixture(plan_in) {}

  void AnswerSlice(uint64_t version) {
    Commit(version);
    From(20, EvaluationResult{.version = Version(version),
                              .sample_count = 100,
                              .confusion = {{0, 0, 100}},
                              .sums = {2.5, 7}});
  }
  void AnswerReport(uint64_t who, uint64_t version, const std::string& stop_text = "") {
    From(who, EvaluationResult{.version = Version(version), .slice = 1, .stop_text = stop_text});
  }
  const pando::Evaluate* Report(uint64_t who) {
    const auto* request = recorder.LastTo<pando::Evaluate>(Incarnation(who));
    return request != nullptr && request->part == EvaluationPart::kReport ? request : nullptr;
  }
};

TEST_CASE("one worker gets the sums, and the evaluation lasts until it has answered (P31a)") {
  ReportingFixture f;
  f.From(10, ScalarsRequest{Step(0)});
  CHECK(f.ToldSteps() == 10);
  f.AnswerSlice(10);
  REQUIRE(f.Report(20) != nullptr);
  CHECK(f.Report(20)->sums == std::vector<double>{2.5, 7});
  CHECK(f.Report(20)->slice == 1);
  CHECK(f.Report(20)->last_sample == 100);
  CHECK(f.Report(21) == nullptr);
  f.AnswerReport(21, 10, "not asked");
  CHECK(f.recorder.evaluations.empty());
  CHECK(f.recorder.LastTo<ReleasePin>(Incarnation(10)) == nullptr);
  CHECK(f.ToldSteps() == 10);
  f.AnswerReport(20, 10);
  REQUIRE(f.recorder.evaluations.size() == 1);
  CHECK(f.recorder.evaluations[0].sums == std::vector<double>{2.5, 7});
  CHECK(f.recorder.LastTo<ReleasePin>(Incarnation(10)) != nullptr);
  CHECK(f.ToldSteps() == 20);
}

TEST_CASE("a report goes to another worker when its worker is gone, as a slice does") {
  ReportingFixture f;
  f.AnswerSlice(10);
  REQUIRE(f.Report(20) != nullptr);
  f.Exit(20, Role::kWorker);
  f.Wait(milliseconds(500));
  REQUIRE(f.Report(21) != nullptr);
  CHECK(f.Report(21)->sums == std::vector<double>{2.5, 7});
  f.AnswerReport(21, 10);
  CHECK(f.recorder.evaluations.size() == 1);
}

TEST_CASE("the program ends the run with the version that it got (P32)") {
  ReportingFixture f;
  f.AnswerSlice(10);
  f.AnswerReport(20, 10);
  f.AnswerSlice(20);
  f.AnswerReport(20, 20, "good enough");
  CHECK(f.scheduler->final_version() == Version(20));
  CHECK(f.scheduler->phase() == Scheduler::Phase::kCollecting);
  CHECK(f.recorder.events.back().text == "the run ends with version 20: good enough");
  f.StartScheduler();
  CHECK(f.scheduler->final_version() == Version(20));
}

TEST_CASE("steps go on beside a report that decides nothing") {
  ReportingFixture f(ReportingPlan(ReportUse::kBeside));
  f.From(10, ScalarsRequest{Step(0)});
  CHECK(f.ToldSteps() == f.plan.steps.step_count());
  f.AnswerSlice(10);
  CHECK(f.Report(20) != nullptr);
  CHECK(f.recorder.evaluations.empty());
}

TEST_CASE("without a test set a version that is due has a report alone") {
  ReportingFixture f(ReportingPlan(ReportUse::kDecides, 0));
  f.Commit(10);
  REQUIRE(f.Report(20) != nullptr);
  CHECK(f.Report(20)->slice == 0);
  CHECK(f.Report(20)->sums.empty());
  f.From(20, EvaluationResult{.version = Version(10), .stop_text = "enough"});
  CHECK(f.scheduler->final_version() == Version(10));
}

TEST_CASE(
    "a dispute withdraws the results of what a wrong gradient made, where they are kept, too") {
  JobPlan plan = DecidingPlan();
  plan.job.verify_every = 1;
  DecidingFixture f(plan);
  f.Evaluate(10, 50);
  f.Evaluate(20, 60);
  REQUIRE(f.recorder.evaluations.size() == 2);
  f.From(20, GradientHashes{{{Step(12), MicroBatch(0), 5}}});
  f.From(21, GradientHashes{{{Step(12), MicroBatch(0), 6}}});
  CHECK(f.recorder.HasEvent("dispute"));
  REQUIRE(f.recorder.evaluations.size() == 1);
  CHECK(f.recorder.evaluations[0].version == Version(10));
  CHECK(f.journal.state->evaluations.size() == 1);
}

TEST_CASE("a result whose counts are not of the classes is not heard") {
  DecidingFixture f;
  f.Commit(10);
  f.From(20, EvaluationResult{.version = Version(10), .sample_count = 100, .confusion = {}});
  f.From(20,
         EvaluationResult{.version = Version(10), .sample_count = 100, .confusion = {{0, 1, 100}}});
  CHECK(f.recorder.evaluations.empty());
  f.Answer(10, 50);
  CHECK(f.recorder.evaluations.size() == 1);
}

}  // namespace
}  // namespace pando
