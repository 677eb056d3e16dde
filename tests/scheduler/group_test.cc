// The scheduler of a run without servers: which workers may join, and that a death is the end.
#include <doctest/doctest.h>

#include "tests/contains.h"
#include "tests/scheduler/scheduler_fixture.h"

namespace pando {
namespace {

JobPlan GroupPlan(uint32_t workers) {
  JobPlan plan = MakePlan(workers, 1, 1);
  plan.job.strategy = Strategy::kAllreduce;
  return plan;
}

// The server is in the process of worker 20, which is rank 0.
struct Group : Fixture {
  explicit Group(uint32_t workers = 2) : Fixture(GroupPlan(workers)) {}
  void JoinServer(uint64_t who, uint64_t worker) {
    From(who, Register{.role = Role::kServer,
                       .host = "h",
                       .process_id = static_cast<uint32_t>(100 + worker),
                       .lane_endpoints = {"tcp://10.0.0.1:1"}});
  }
  void StartGroup() {
    for (uint64_t i = 0; i < plan.job.workers; ++i) Join(20 + i, Role::kWorker);
    JoinServer(10, 20);
    for (uint64_t i = 0; i < plan.job.workers; ++i) BeReady(20 + i);
    BeReady(10);
    Wait(milliseconds(10));
  }
  std::string ReasonAgainst(uint64_t who) {
    const Refused* refused = recorder.LastTo<Refused>(Incarnation(who));
    return refused == nullptr ? "" : refused->reason;
  }
};

TEST_CASE("a group begins when all workers and worker 0's lane are there, with equal shares") {
  Group f;
  f.StartGroup();
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  CHECK(f.CountShares(20) == 4);
  CHECK(f.CountShares(21) == 4);
  CHECK(f.IsNamed(10));
}

TEST_CASE("a group accepts no further worker, before or after it begins") {
  Group f;
  f.JoinServer(10, 20);  // before its worker
  CHECK(Contains(f.ReasonAgainst(10), "no servers"));
  f.From(25, Register{.role = Role::kWorker, .host = "h", .wanted_rank = 2});
  CHECK(Contains(f.ReasonAgainst(25), "ranks 0 to 1"));
  f.Join(20, Role::kWorker);
  f.Join(21, Role::kWorker);
  f.Join(22, Role::kWorker);
  CHECK(Contains(f.ReasonAgainst(22), "2 workers are the group"));
  f.JoinServer(11, 99);
  CHECK(Contains(f.ReasonAgainst(11), "no servers"));
  f.JoinServer(12, 20);
  CHECK(f.ReasonAgainst(12).empty());
  f.BeReady(12);
  f.BeReady(20);
  f.BeReady(21);
  f.Wait(milliseconds(10));
  f.Join(23, Role::kWorker);
  CHECK(Contains(f.ReasonAgainst(23), "no other can join"));
  f.JoinServer(13, 21);
  CHECK(Contains(f.ReasonAgainst(13), "no servers"));
}

TEST_CASE("a worker's death ends the run, and the end names it") {
  for (const bool is_told : {true, false}) {
    Group f;
    f.StartGroup();
    if (is_told) f.Exit(21, Role::kWorker);
    f.Wait(milliseconds(1500), {21});
    REQUIRE(f.scheduler->phase() >= Scheduler::Phase::kStopping);
    CHECK(f.scheduler->stop().reason == StopReason::kFailed);
    CHECK(Contains(f.scheduler->stop().text, "worker 1"));
    CHECK(Contains(f.scheduler->stop().text, "--group-restarts"));
    CHECK(f.scheduler->has_lost_member());
  }
}

TEST_CASE("the death of the lane is called by its process's name") {
  Group f;
  f.StartGroup();
  f.Exit(20, Role::kServer);  // the lane's process is worker 0's
  REQUIRE(f.scheduler->phase() >= Scheduler::Phase::kStopping);
  CHECK(Contains(f.scheduler->stop().text, "worker 0"));
}

TEST_CASE("a worker that cannot go on ends the run with its own words") {
  Group f(3);
  f.StartGroup();
  f.From(22, Failure{"a disk broke", FailureKind::kMachine});
  REQUIRE(f.scheduler->phase() >= Scheduler::Phase::kStopping);
  CHECK(Contains(f.scheduler->stop().text, "worker 2"));
  CHECK(Contains(f.scheduler->stop().text, "a disk broke"));
  CHECK_FALSE(f.scheduler->has_lost_member());
}

TEST_CASE("status names the worker for which the others wait") {
  Group f(3);
  f.StartGroup();
  const Heartbeat waits{.activity = Activity::kWaitingForParameters, .step = Step(7)};
  f.From(20, waits);
  f.From(21, Heartbeat{.activity = Activity::kComputing, .step = Step(7)});
  f.From(22, Heartbeat{.activity = Activity::kWaitingForParameters, .step = Step(6)});
  CHECK(Contains(f.scheduler->StatusJson(f.now), R"("waiting_for":"worker 1, worker 2")"));
  f.From(21, waits);
  f.From(22, waits);
  CHECK(Contains(f.scheduler->StatusJson(f.now), R"("waiting_for":"the sum")"));
}

TEST_CASE("the lines of a group's workers are those among themselves") {
  Group f(3);
  f.StartGroup();
  for (const uint64_t worker : {20, 21, 22}) f.From(worker, Heartbeat{.tcp_lines = 1});
  f.From(10, Heartbeat{.activity = Activity::kServing});
  const std::string status = f.scheduler->StatusJson(f.now);
  CHECK(Contains(status, R"("lines":{"group":2})"));
  CHECK_FALSE(Contains(status, R"("tcp":1)"));
}

TEST_CASE("no worker is drained from a group") {
  Group f;
  f.StartGroup();
  f.From(901, Command{CommandKind::kDrain, "worker 1"});
  const CommandReply* reply = f.recorder.LastTo<CommandReply>(Incarnation(901));
  REQUIRE(reply != nullptr);
  CHECK(reply->outcome == CommandOutcome::kRefused);
  CHECK(Contains(reply->text, "cannot go on without worker 1"));
  f.From(21, Leave{});
  f.Wait(milliseconds(100));
  CHECK(f.recorder.HasEvent("drain-refused"));
  CHECK(f.CountShares(21) == 4);
}

TEST_CASE("shares stay as they are, however fast the workers are") {
  Group f;
  f.StartGroup();
  for (int i = 0; i < 300; ++i) {
    f.From(20, Heartbeat{.micro_batch_us = 1000});
    f.From(21, Heartbeat{.micro_batch_us = 9000});
    f.Wait(milliseconds(50));
  }
  CHECK(f.CountShares(20) == 4);
  CHECK(f.CountShares(21) == 4);
}

}  // namespace
}  // namespace pando
