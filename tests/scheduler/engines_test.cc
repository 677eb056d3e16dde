// P39: the engines of each kind of GPU worker are decided once.
#include <doctest/doctest.h>

#include <string>

#include "tests/scheduler/scheduler_fixture.h"

namespace pando {
namespace {

constexpr uint64_t kWorker = 20, kOther = 21;

JobPlan PlanThat(bool tunes) {
  JobPlan plan = MakePlan(2, 2);
  plan.job.tune_engines = tunes;
  return plan;
}

struct EnginesFixture : Fixture {
  explicit EnginesFixture(bool tunes = true) : Fixture(PlanThat(tunes)) {
    Join(kWorker, Role::kWorker);
    Join(kOther, Role::kWorker);
  }
  // What the scheduler answers; "-" if it does not.
  std::string Ask(uint64_t who, const std::string& kind, const std::string& engines = "") {
    recorder.sent.clear();
    // Without its Welcome, which is gone, the worker is known by its incarnation.
    scheduler->OnMessage(now, {.job = kJob,
                               .sender = {NodeId(1), Incarnation(who), 0},
                               .receiver = self,
                               .message = EngineProposal{kind, engines}});
    scheduler->Tick(now);
    const auto* decision = recorder.LastTo<EngineDecision>(Incarnation(who));
    if (decision == nullptr) return "-";
    CHECK(decision->kind == kind);
    return decision->engines;
  }
};

TEST_CASE("the first proposal of a kind is decided for all of its workers") {
  EnginesFixture f;
  CHECK(f.Ask(kWorker, "H200").empty());
  CHECK(f.Ask(kOther, "H200").empty());
  CHECK(f.journal.state->engines.empty());
  CHECK(f.Ask(kOther, "H200", "of 21") == "of 21");
  CHECK(f.journal.state->engines == std::vector<KindEngines>{{"H200", "of 21"}});
  CHECK(f.Ask(kWorker, "H200", "of 20") == "of 21");
  CHECK(f.Ask(kWorker, "H200") == "of 21");
  CHECK(f.Ask(kOther, "H200", "of 21, measured again") == "of 21");
  CHECK(f.journal.state->engines == std::vector<KindEngines>{{"H200", "of 21"}});
  CHECK(f.recorder.HasEvent("engines"));
}

TEST_CASE("each kind of GPU has its own engines") {
  EnginesFixture f;
  CHECK(f.Ask(kWorker, "H200", "of an H200") == "of an H200");
  CHECK(f.Ask(kOther, "A100").empty());
  CHECK(f.Ask(kOther, "A100", "of an A100") == "of an A100");
  CHECK(f.Ask(kWorker, "H200") == "of an H200");
  CHECK(f.journal.state->engines ==
        std::vector<KindEngines>{{"A100", "of an A100"}, {"H200", "of an H200"}});
}

TEST_CASE("a scheduler that restarts, and one that resumes, know what was decided") {
  EnginesFixture f;
  CHECK(f.Ask(kWorker, "H200", "of 20") == "of 20");
  f.StartScheduler();
  CHECK(f.Ask(kOther, "H200", "of 21") == "of 20");
  f.StartScheduler(/*is_fresh=*/true);
  f.Join(kOther, Role::kWorker);
  CHECK(f.Ask(kOther, "H200", "of 21") == "of 20");
}

TEST_CASE("engines that the journal does not take are not announced (P25)") {
  EnginesFixture f;
  f.journal.refuses = true;
  CHECK(f.Ask(kWorker, "H200", "of 20") == "-");
  CHECK(f.scheduler->fenced());
}

TEST_CASE("the run folder's engines count if the journal has none of their kind") {
  EnginesFixture f;
  CHECK(f.Ask(kWorker, "H200", "of 20") == "of 20");
  Scheduler::Options options{.self = f.self,
                             .job = Fixture::kJob,
                             .job_toml = "toml",
                             .state = f.journal.state,
                             .engines = {{"H200", "of the folder"}, {"A100", "of the folder"}}};
  f.scheduler = std::make_unique<Scheduler>(options, f.plan, f.journal, f.recorder, f.recorder);
  CHECK(f.Ask(kWorker, "H200") == "of 20");
  CHECK(f.Ask(kWorker, "A100") == "of the folder");
  CHECK(f.journal.state->engines.size() == 2);
}

TEST_CASE("a kind too many is refused, and the others stay") {
  EnginesFixture f;
  for (size_t i = 0; i < EngineDecisions::kKindsMax; ++i)
    CHECK(f.Ask(kWorker, "kind " + std::to_string(i), "e") == "e");
  CHECK(f.Ask(kOther, "one more") == "-");  // before it measures
  CHECK(f.recorder.LastTo<Refused>(Incarnation(kOther)) != nullptr);
  CHECK(f.Ask(kOther, "kind 7") == "e");
  CHECK(f.journal.state->engines.size() == EngineDecisions::kKindsMax);
}

TEST_CASE("a proposal that cannot be read is refused, and decides nothing") {
  EnginesFixture f;
  const Scheduler::Options options{.self = f.self,
                                   .job = Fixture::kJob,
                                   .job_toml = "toml",
                                   .check_engines = [](const KindEngines& proposal) {
                                     return proposal.engines == "good" ? Status()
                                                                       : InvalidArgument("bad");
                                   }};
  f.scheduler = std::make_unique<Scheduler>(options, f.plan, f.journal, f.recorder, f.recorder);
  f.Join(kWorker, Role::kWorker);
  CHECK(f.Ask(kWorker, "H200", "no engines") == "-");
  REQUIRE(f.recorder.LastTo<Refused>(Incarnation(kWorker)) != nullptr);
  CHECK(f.recorder.LastTo<Refused>(Incarnation(kWorker))->reason == "bad");
  CHECK(f.Ask(kWorker, "H200", "good") == "good");
}

TEST_CASE("the run waits while a worker measures, until it has proposed or is gone") {
  EnginesFixture f;
  CHECK_FALSE(f.scheduler->IsMeasuring());
  CHECK(f.Ask(kWorker, "H200").empty());
  CHECK(f.Ask(kOther, "A100").empty());
  CHECK(f.scheduler->IsMeasuring());
  CHECK(f.Ask(kWorker, "H200", "of 20") == "of 20");
  CHECK(f.scheduler->IsMeasuring());
  f.Exit(kOther, Role::kWorker);
  CHECK_FALSE(f.scheduler->IsMeasuring());
}

TEST_CASE("servers, ready workers and workers of other jobs decide nothing") {
  EnginesFixture f;
  f.Join(10, Role::kServer);
  CHECK(f.Ask(10, "H200", "of a server") == "-");
  f.BeReady(kOther);
  CHECK(f.Ask(kOther, "H200", "too late") == "-");
  CHECK(f.Ask(kWorker, "H200").empty());
  EnginesFixture untuned(false);
  CHECK(untuned.Ask(kWorker, "H200", "not wanted") == "-");
}

TEST_CASE("a stranger decides nothing") {
  EnginesFixture f;
  CHECK(f.Ask(999, "H200", "of a stranger") == "-");
  CHECK(f.Ask(kWorker, "H200").empty());
}

}  // namespace
}  // namespace pando
