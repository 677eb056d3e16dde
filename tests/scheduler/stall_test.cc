// The cause that the scheduler names when a run makes no step.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/contains.h"
#include "tests/scheduler/scheduler_fixture.h"

namespace pando {
namespace {

using std::chrono::seconds;

// Two workers, 20 and 21, and two servers, 10 and 11, that make steps.
struct StallFixture : Fixture {
  explicit StallFixture(JobPlan plan_in = MakePlan(2, 2)) : Fixture(std::move(plan_in)) {
    StartAll();
    MakeSteps(20);
  }
  void MakeSteps(int count) {
    for (int i = 0; i < count; ++i) {
      Wait(milliseconds(50));
      Commit(scheduler->committed().value() + 1);
    }
  }
  // Lets time pass, in which these members say this and the others nothing.
  void Say(Micros time, const std::map<uint64_t, Heartbeat>& heartbeats) {
    const Micros until = now + time;
    while (now < until) {
      now += milliseconds(50);
      for (const auto& [who, heartbeat] : heartbeats) From(who, heartbeat);
      scheduler->Tick(now);
    }
  }
  Heartbeat WaitsFor(uint64_t who, Micros time) const {
    return {.activity = Activity::kWaitingForParameters,
            .step = Step(20),
            .waiting_for = {NodeFor(who), Incarnation(who), 0},
            .waiting_ms = static_cast<uint64_t>(time / milliseconds(1))};
  }
  nlohmann::json Stalled() const {
    const nlohmann::json status = nlohmann::json::parse(scheduler->StatusJson(now));
    return status.contains("stall") ? status["stall"] : nlohmann::json();
  }
  std::string LastEvent(const std::string& name) const {
    std::string text;
    for (const RunEvent& event : recorder.events)
      if (event.name == name) text = event.text;
    return text;
  }
};

const Heartbeat kServes{.activity = Activity::kServing};
const Heartbeat kComputes{.activity = Activity::kComputing, .step = Step(20)};

TEST_CASE("no cause is named while steps are made, or for less than a second without one") {
  StallFixture f;
  CHECK(f.Stalled().is_null());
  f.Wait(milliseconds(900));
  CHECK(f.Stalled().is_null());
  f.MakeSteps(5);
  CHECK_FALSE(f.recorder.HasEvent("stalled"));
}

TEST_CASE("the cause of a stall is looked for again after 0.25 ms per member") {
  StallFixture f;
  f.From(21, kComputes);
  f.Say(seconds(1), {{20, f.WaitsFor(10, milliseconds(500))}, {10, kServes}, {11, kServes}});
  const auto is_silent_after = [&f](Micros time) {
    f.now += time;
    f.scheduler->Tick(f.now);
    return Contains(f.Stalled()["text"], "no message comes from process 121");
  };
  f.From(21, kComputes);
  CHECK(is_silent_after(Micros(999)));
  CHECK_FALSE(is_silent_after(Micros(1)));
}

TEST_CASE("a silent member is the cause") {
  StallFixture f;
  Heartbeat computes = kComputes;
  computes.log_line = "step 20";
  f.From(21, computes);
  f.Say(milliseconds(950), {{20, f.WaitsFor(10, milliseconds(500))}, {10, kServes}, {11, kServes}});
  CHECK(f.Stalled().is_null());
  f.Say(milliseconds(50), {{20, f.WaitsFor(10, milliseconds(500))}, {10, kServes}, {11, kServes}});
  CHECK(f.Stalled()["waited_for"] == "worker 1");
  CHECK(f.Stalled()["waiter"] == "worker 0");
  CHECK(Contains(f.Stalled()["text"], "process 121 on h"));
  CHECK(f.Stalled()["log_line"] == "step 20");
  CHECK(Contains(f.LastEvent("stalled"), "no step for 1.0 s: worker 0 has waited"));
}

TEST_CASE("a run without a worker waits for the last one that was given up") {
  StallFixture f(MakePlan(1, 2));
  f.Say(seconds(3), {{10, kServes}, {11, kServes}});
  CHECK(f.NodeFor(20) == kUnknownNode);
  CHECK(f.Stalled()["waited_for"] == "worker 0");
  CHECK(Contains(f.Stalled()["text"], "process 120 on h was given up"));
  f.Join(30, Role::kWorker);
  f.BeReady(30);
  f.MakeSteps(2);
  CHECK(f.Stalled().is_null());
  CHECK(Contains(f.LastEvent("stall-ended"), "the run waited for worker 0"));
}

TEST_CASE("a server that was given up since the last step is the cause, until a step is made") {
  StallFixture f;
  f.Say(milliseconds(400), {{20, f.WaitsFor(10, milliseconds(300))},
                            {21, f.WaitsFor(10, milliseconds(300))},
                            {11, kServes}});
  f.Exit(10, Role::kServer);
  f.Say(milliseconds(700), {{20, f.WaitsFor(11, milliseconds(900))},
                            {21, f.WaitsFor(11, milliseconds(900))},
                            {11, kServes}});
  CHECK(f.Stalled()["waited_for"] == "server 0");
  CHECK(Contains(f.Stalled()["text"], "process 110 on h was given up"));
  f.MakeSteps(3);
  CHECK(f.Stalled().is_null());
}

TEST_CASE("a scheduler that was stopped itself names no cause before it hears the others") {
  StallFixture f;
  f.now += seconds(5);
  f.scheduler->Tick(f.now);
  CHECK(f.Stalled().is_null());
  CHECK_FALSE(f.recorder.HasEvent("stalled"));
}

TEST_CASE("a worker that waits for samples is the cause, and else one that computes for long") {
  StallFixture f;
  const std::map<uint64_t, Heartbeat> others = {
      {20, f.WaitsFor(10, seconds(1))}, {10, kServes}, {11, kServes}};
  auto all = others;
  all[21] = kComputes;
  f.Say(milliseconds(1100), all);
  CHECK(f.Stalled()["waited_for"] == "worker 1");
  CHECK(f.Stalled()["what"] == "gradients of step 20");
  all[21].samples_wait_ms = 1400;
  f.Say(milliseconds(100), all);
  CHECK(f.Stalled()["what"] == "samples of step 20");
  CHECK(f.Stalled()["since_ms"] == 1400);
  const std::string status = f.scheduler->StatusJson(f.now);
  CHECK(status.find("waiting for samples") != std::string::npos);
}

TEST_CASE("a server that the scheduler hears and a worker waits for is the cause") {
  StallFixture f;
  f.Say(milliseconds(1100), {{20, f.WaitsFor(11, milliseconds(900))},
                             {21, f.WaitsFor(10, milliseconds(800))},
                             {10, kServes},
                             {11, kServes}});
  CHECK(f.Stalled()["waiter"] == "worker 0");
  CHECK(f.Stalled()["waited_for"] == "server 1");
  CHECK(f.Stalled()["what"] == "parameters of step 21");
  CHECK(f.Stalled()["since_ms"] == 900);
}

TEST_CASE("a backup that does not acknowledge is the cause") {
  StallFixture f;
  Heartbeat owes = kServes;
  owes.waiting_for = {f.NodeFor(10), Incarnation(10), 0};
  owes.waiting_ms = 700;
  f.Say(milliseconds(1100), {{20, f.WaitsFor(11, milliseconds(900))},
                             {21, f.WaitsFor(11, milliseconds(900))},
                             {10, kServes},
                             {11, owes}});
  CHECK(f.Stalled()["waiter"] == "server 1");
  CHECK(f.Stalled()["waited_for"] == "server 0");
  CHECK(f.Stalled()["since_ms"] == 700);
}

TEST_CASE("slow steps are no stall, and ten of them are") {
  StallFixture f;
  for (int i = 0; i < 10; ++i) {
    f.Wait(milliseconds(800));
    f.Commit(f.scheduler->committed().value() + 1);
  }
  f.Wait(seconds(7));
  CHECK(f.Stalled().is_null());
  f.Wait(seconds(2));
  CHECK_FALSE(f.Stalled().is_null());
}

TEST_CASE("a run that has not begun waits for those that have not joined") {
  Fixture f(MakePlan(2, 2));
  f.Join(10, Role::kServer);
  f.BeReady(10);
  f.Join(20, Role::kWorker);
  f.BeReady(20);
  const Micros start = f.now;
  while (f.now < start + milliseconds(1400)) {
    CHECK(f.scheduler->NextDeadline() <= f.now + milliseconds(500));
    f.now += milliseconds(200);
    f.scheduler->Tick(f.now);
  }
  CHECK_FALSE(f.recorder.HasEvent("stalled"));
  f.now += milliseconds(100);
  f.scheduler->Tick(f.now);
  const std::string status = f.scheduler->StatusJson(f.now);
  CHECK(Contains(status, R"("waited_for":"1 more server and 1 more worker")"));
  CHECK(Contains(status, "here are 1 of 2 servers, 1 of 2 workers"));
  CHECK(f.recorder.HasEvent("stalled"));
}

TEST_CASE("a cause that changes all the time makes events more and more seldom") {
  StallFixture f;
  for (int i = 0; i < 300; ++i) {
    f.Say(milliseconds(200), {{20, f.WaitsFor(i % 2 == 0 ? 10 : 11, seconds(1))},
                              {21, f.WaitsFor(i % 2 == 0 ? 11 : 10, milliseconds(900))},
                              {10, kServes},
                              {11, kServes}});
  }
  const auto told = std::ranges::count(f.recorder.events, std::string("stalled"), &RunEvent::name);
  CHECK(told >= 4);
  CHECK(told <= 8);
}

}  // namespace
}  // namespace pando
