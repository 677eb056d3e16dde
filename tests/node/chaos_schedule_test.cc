#include "node/chaos_schedule.h"

#include <doctest/doctest.h>

#include <map>

namespace pando {
namespace {

using namespace std::chrono_literals;

constexpr ChaosField kField{.worker_count = 3, .server_count = 2, .step_count = 1000};
const std::set<std::string> kAllRun{"scheduler", "server-0", "server-1",
                                    "worker-0",  "worker-1", "worker-2"};

ChaosPlan Parsed(std::string_view text) {
  Result<ChaosPlan> plan = ParseChaos(text, kField);
  REQUIRE_MESSAGE(plan.ok(), plan.status().message());
  return *plan;
}

std::string ParseError(std::string_view text) {
  Result<ChaosPlan> plan = ParseChaos(text, kField);
  REQUIRE_FALSE(plan.ok());
  return plan.status().message();
}

std::string Text(const std::vector<ChaosAct>& acts) {
  std::string text;
  for (const ChaosAct& act : acts) {
    text += std::string(text.empty() ? "" : ", ") + EnumName(act.action) + " " + act.process;
  }
  return text;
}

TEST_CASE("an entry is an action, a target, a duration and a time") {
  const ChaosPlan plan = Parsed(
      "kill worker at step 100; stop server 1 2s at step 0;partition workers 250ms every 1.5m ;");
  REQUIRE(plan.entries.size() == 3);
  CHECK(plan.entries[0].action == ChaosAction::kKill);
  CHECK(plan.entries[0].target == ChaosTarget::kWorker);
  CHECK_FALSE(plan.entries[0].index.has_value());
  CHECK(plan.entries[0].step == Step(100));
  CHECK(plan.entries[1].action == ChaosAction::kStop);
  CHECK(plan.entries[1].target == ChaosTarget::kServer);
  CHECK(plan.entries[1].index == 1);
  CHECK(plan.entries[1].duration == 2s);
  CHECK(plan.entries[1].text == "stop server 1 2s at step 0");
  CHECK(plan.entries[2].target == ChaosTarget::kWorkers);
  CHECK(plan.entries[2].duration == 250ms);
  CHECK(plan.entries[2].interval == 90s);
  CHECK_FALSE(plan.entries[2].step.has_value());
}

TEST_CASE("random chaos has a seed and may have a mean interval") {
  CHECK(Parsed("random:7").random->seed == 7);
  CHECK(Parsed("random:7").random->mean_interval == 2s);
  CHECK(Parsed("random:0:5s; kill all at step 3").random->mean_interval == 5s);
}

TEST_CASE("a wrong word is named, with the nearest right one") {
  CHECK(ParseError("kil worker at step 1") ==
        "--chaos 'kil worker at step 1': unknown action 'kil'; did you mean 'kill'?");
  CHECK(ParseError("kill wroker at step 1").ends_with("did you mean 'worker' or 'workers'?"));
  CHECK(ParseError("kill worker at stpe 1").ends_with("did you mean 'step'?"));
  CHECK(ParseError("kill worker evry 1s").ends_with("did you mean 'every'?"));
  CHECK(ParseError("kill").find("the target is missing") != std::string::npos);
  CHECK(ParseError("kill worker").find("the time is missing") != std::string::npos);
  CHECK(ParseError("kill worker at step").ends_with("'at step' needs a number"));
  CHECK(ParseError("kill worker at step -1").ends_with("'at step' needs a number"));
  CHECK(ParseError("kill worker at step 1 2").ends_with("nothing is expected after '1'"));
  CHECK(ParseError("kill worker 2s at step 1").find("takes no duration") != std::string::npos);
  CHECK(ParseError("stop worker at step 1").find("needs a duration") != std::string::npos);
  CHECK(ParseError("stop worker 0s at step 1").find("needs a duration") != std::string::npos);
  CHECK(ParseError("stop worker 61m at step 1").find("needs a duration") != std::string::npos);
  CHECK(ParseError("kill worker every 3").find("needs a duration") != std::string::npos);
  CHECK(ParseError("kill scheduler 1 at step 1").ends_with("'scheduler' takes no number"));
  CHECK(ParseError("random:x").find("random:SEED") != std::string::npos);
  CHECK(ParseError("random:1:x").find("random:SEED") != std::string::npos);
  CHECK(ParseError(" ; ").ends_with("the text is empty"));
}

TEST_CASE("a target that the run does not have and a step past its end are errors") {
  CHECK(ParseError("kill worker 3 at step 1")
            .ends_with("there is no worker 3: the run has 3, counted from 0"));
  CHECK(ParseError("kill server 2 every 1s").find("there is no server 2") != std::string::npos);
  CHECK(ParseError("kill worker at step 1000")
            .ends_with("the job ends with step 1000; give a lower step"));
  Parsed("kill worker at step 999");
}

TEST_CASE("a step behind a run that is resumed is an error") {
  ChaosField field = kField;
  field.first_step = 500;
  const Result<ChaosPlan> plan = ParseChaos("kill worker at step 499", field);
  REQUIRE_FALSE(plan.ok());
  CHECK(plan.status().message().ends_with("the run goes on from step 500; step 499 is behind it"));
  CHECK(ParseChaos("kill worker at step 500", field).ok());
}

TEST_CASE("a step's entry comes due once, when the step is reached or passed") {
  ChaosSchedule schedule(Parsed("kill worker 1 at step 100; stop server 1s at step 300"));
  CHECK(schedule.NextDeadline() == kNever);
  CHECK(schedule.Due(1s, Step(99), kAllRun).empty());
  CHECK(Text(schedule.Due(2s, Step(103), kAllRun)) == "kill worker-1");
  CHECK(schedule.Due(3s, Step(104), kAllRun).empty());
  CHECK(schedule.Unmet() == std::vector<std::string>{"stop server 1s at step 300"});
  CHECK(Text(schedule.Due(4s, Step(300), kAllRun)) == "stop server-0");
  CHECK(schedule.Unmet().empty());
}

TEST_CASE("an entry whose target is being restarted waits for it") {
  ChaosSchedule schedule(Parsed("kill worker 1 at step 100"));
  std::set<std::string> without = kAllRun;
  without.erase("worker-1");
  CHECK(schedule.Due(1s, Step(100), without).empty());
  CHECK_FALSE(schedule.Unmet().empty());
  CHECK(Text(schedule.Due(2s, Step(120), kAllRun)) == "kill worker-1");
}

TEST_CASE("an entry of an interval whose target is away is looked at again a moment later") {
  ChaosSchedule schedule(Parsed("kill worker 1 every 3s"));
  std::set<std::string> without = kAllRun;
  without.erase("worker-1");
  CHECK(schedule.Due(3s, Step(0), without).empty());
  CHECK(schedule.NextDeadline() > 3s);
  CHECK(schedule.NextDeadline() < 4s);
  CHECK_FALSE(schedule.Unmet().empty());
  CHECK(Text(schedule.Due(4s, Step(0), kAllRun)) == "kill worker-1");
  CHECK(schedule.NextDeadline() == 7s);
}

TEST_CASE("without an index each one's turn comes, the dead are passed over") {
  ChaosSchedule schedule(Parsed("kill worker every 3s"));
  CHECK(schedule.NextDeadline() == 3s);
  CHECK(schedule.Due(2s, Step(0), kAllRun).empty());
  CHECK(Text(schedule.Due(3s, Step(0), kAllRun)) == "kill worker-0");
  CHECK(schedule.NextDeadline() == 6s);
  std::set<std::string> without = kAllRun;
  without.erase("worker-1");
  CHECK(Text(schedule.Due(6s, Step(0), without)) == "kill worker-2");
  CHECK(Text(schedule.Due(9s, Step(0), kAllRun)) == "kill worker-0");
}

TEST_CASE("groups are all that run of them") {
  ChaosSchedule schedule(Parsed("kill servers at step 1; kill all at step 2"));
  CHECK(Text(schedule.Due(1s, Step(1), kAllRun)) == "kill server-0, kill server-1");
  CHECK(schedule.Due(2s, Step(2), kAllRun).size() == kAllRun.size());
}

TEST_CASE("random chaos is the seed's alone, of every kind and role, as often as asked") {
  const auto story = [](const char* text) {
    ChaosSchedule schedule(Parsed(text));
    std::string told;
    for (Micros now{0}; now < 1000s; now = schedule.NextDeadline()) {
      told += Text(schedule.Due(now, Step(0), kAllRun)) + "\n";
    }
    return told;
  };
  const std::string seven = story("random:7");
  CHECK(seven == story("random:7"));
  CHECK(seven != story("random:8"));
  for (const char* part : {"kill worker-0", "kill worker-2", "kill server-1", "kill scheduler",
                           "stop worker", "partition server"}) {
    CHECK_MESSAGE(seven.find(part) != std::string::npos, part);
  }
  // 1000 s at 2 s on average: 500 expected, standard deviation 22.
  const auto count = std::count(seven.begin(), seven.end(), '\n');
  CHECK(count > 400);
  CHECK(count < 600);
}

TEST_CASE("random faults without a seed get one that can be given again") {
  const ChaosField field{2, 2, 100, 0};
  Result<ChaosPlan> drawn = ParseChaos("random", field);
  REQUIRE(drawn.ok());
  REQUIRE(drawn->random);
  Result<ChaosPlan> again = ParseChaos("random:" + std::to_string(drawn->random->seed), field);
  REQUIRE(again.ok());
  CHECK(again->random->seed == drawn->random->seed);
}

}  // namespace
}  // namespace pando
