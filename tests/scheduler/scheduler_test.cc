#include "scheduler/scheduler.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "proto/message_limits.h"
#include "tests/scheduler/scheduler_fixture.h"

namespace pando {
namespace {

TEST_CASE("a repeated registration gets the same welcome") {
  Fixture f;
  f.Join(20, Role::kWorker);
  const NodeId node = f.recorder.LastTo<Welcome>(Incarnation(20))->node;
  f.Join(20, Role::kWorker);
  CHECK(f.recorder.LastTo<Welcome>(Incarnation(20))->node == node);
  CHECK(f.recorder.LastTo<Welcome>(Incarnation(20))->job_toml == "toml");
}

TEST_CASE("more processes than the job wants take part as well") {
  Fixture f;
  f.Add(22, Role::kWorker);
  f.StartAll();
  f.Wait(milliseconds(10));
  CHECK(f.scheduler->view().nodes.size() == 5);
  CHECK(f.CountShares(22) > 0);
}

TEST_CASE("a server without lanes and a worker with two are refused") {
  Fixture f;
  f.From(10, Register{.role = Role::kServer, .host = "h"});
  CHECK(f.recorder.LastTo<Refused>(Incarnation(10)) != nullptr);
  const std::vector<std::string> two = {"tcp://x:1", "tcp://x:2"};
  f.From(20, Register{.role = Role::kWorker, .host = "h", .lane_endpoints = two});
  CHECK(f.recorder.LastTo<Refused>(Incarnation(20)) != nullptr);
}

TEST_CASE("a server whose lanes no peer could connect to is refused") {
  Fixture f;
  uint64_t who = 10;
  const std::string too_long = "ipc:///tmp/" + std::string(200, 'x');  // for every peer's parser
  for (const char* endpoint :
       {"", "nowhere", "udp://x:1", "tcp://", "tcp://:1", "tcp://nowhere", "tcp://x:", "tcp://x:0",
        "tcp://x:65536", "tcp://x:999999", "tcp://x:1y", "tcp://*:1", "tcp://0.0.0.0:1",
        "tcp://[::]:1", "tcp://::1:1", "tcp://a b:1", "ipc://", too_long.c_str()}) {
    CAPTURE(endpoint);
    f.From(++who, Register{.role = Role::kServer, .host = "h", .lane_endpoints = {endpoint}});
    const Refused* refused = f.recorder.LastTo<Refused>(Incarnation(who));
    REQUIRE(refused != nullptr);
    CHECK(refused->kind == RefusalKind::kNotThisOne);
  }
  for (const char* endpoint :
       {"tcp://a-b.c_D:65535", "tcp://10.0.0.1:1", "tcp://[fd00::2]:1", "ipc:///tmp/a b"}) {
    CAPTURE(endpoint);
    f.From(++who, Register{.role = Role::kServer, .host = "h", .lane_endpoints = {endpoint}});
    CHECK(f.recorder.LastTo<Welcome>(Incarnation(who)) != nullptr);
  }
}

TEST_CASE("a process that joins after the end of the run is refused") {
  Fixture f;
  f.StartAll();
  f.scheduler->End(f.now, StopReason::kInterrupted, "interrupted");
  f.Join(22, Role::kWorker);
  REQUIRE(f.recorder.LastTo<Refused>(Incarnation(22)) != nullptr);
  CHECK(f.recorder.LastTo<Refused>(Incarnation(22))->kind == RefusalKind::kRunIsOver);
}

TEST_CASE("a run that has seen 65,535 processes gives the ids of the dead again") {
  Fixture f;
  f.journal.state = SchedulerState{.job = Fixture::kJob, .next_node = kNodesMax - 1};
  f.StartScheduler();
  for (uint64_t who : {90, 91, 92}) f.Join(who, Role::kWorker);
  CHECK(f.recorder.LastTo<Welcome>(Incarnation(90))->node == NodeId(kNodesMax - 1));
  CHECK(f.recorder.LastTo<Welcome>(Incarnation(91))->node == NodeId(1));
  CHECK(f.recorder.LastTo<Welcome>(Incarnation(92))->node == NodeId(2));
  f.journal.state = SchedulerState{.job = Fixture::kJob, .next_node = kNodesMax};  // an older one's
  f.StartScheduler();
  f.Join(93, Role::kWorker);
  CHECK(f.recorder.LastTo<Welcome>(Incarnation(93))->node == NodeId(1));
}

TEST_CASE("an id is given again only after all others, and never while a process has it") {
  NodeIds ids(1);
  const auto is_taken = [](NodeId id) { return id.value() % 2 == 1; };
  for (uint32_t round = 0; round < 2; ++round) {
    for (uint32_t id = 2; id < kNodesMax; id += 2) REQUIRE(ids.Take(is_taken) == NodeId(id));
  }
  CHECK_FALSE(ids.Take([](NodeId) { return true; }));
  for (uint64_t life = 1; life <= kNodesMax + 1; ++life) ids.GiveUp(Incarnation(life));
  CHECK_FALSE(ids.IsGivenUp(Incarnation(1)));
  CHECK(ids.IsGivenUp(Incarnation(2)));
}

TEST_CASE("a storm of registrations and deaths leaves the run its ids and its first members") {
  Fixture f;
  f.journal.state = SchedulerState{.job = Fixture::kJob, .next_node = kNodesMax - 1000};
  f.StartScheduler();
  f.StartAll();
  for (uint64_t i = 0; i < 3000; ++i) {
    Register registration{.role = Role::kWorker, .host = "storm", .process_id = 1};
    registration.process_key = i + 1;
    f.scheduler->OnMessage(f.now, {.job = Fixture::kJob,
                                   .sender = {kUnknownNode, Incarnation(1000 + i), 0},
                                   .receiver = f.self,
                                   .message = registration});
    f.scheduler->OnDisconnect(f.now, Incarnation(1000 + i), "nonsense");
    if (i % 100 == 0) {
      f.scheduler->Tick(f.now);
      f.recorder.sent.clear();
      f.recorder.events.clear();
      f.recorder.faults.clear();
    }
  }
  f.Add(30, Role::kWorker);
  const Welcome* welcome = f.recorder.LastTo<Welcome>(Incarnation(30));
  REQUIRE(welcome != nullptr);
  CHECK(welcome->node.value() < 3000);
  CHECK(f.NodeFor(10) == NodeId(kNodesMax - 1000));
  CHECK(f.NodeFor(21) == NodeId(kNodesMax - 997));
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
}

TEST_CASE("training starts when everybody is ready, not before") {
  Fixture f(MakePlan(2, 1));
  f.Join(10, Role::kServer);
  f.Join(20, Role::kWorker);
  f.Join(21, Role::kWorker);
  f.BeReady(10);
  f.BeReady(20);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kGathering);
  CHECK(f.scheduler->membership().MissingText() == "1 of 1 servers, 1 of 2 workers");
  f.BeReady(21);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  REQUIRE(f.recorder.LastTo<ViewUpdate>(Incarnation(21)) != nullptr);
  CHECK(f.recorder.LastTo<ViewUpdate>(Incarnation(21))->view->owners.size() ==
        f.plan.job.micro_batches);
}

TEST_CASE("one host's workers have adjacent micro-batches in any order of joining (P6a)") {
  Fixture f(MakePlan(4, 1));
  f.Join(10, Role::kServer);
  for (uint64_t i = 0; i < 4; ++i) f.Join(20 + i, Role::kWorker, i % 2 == 0 ? "left" : "right");
  f.BeReady(10);
  for (uint64_t i = 0; i < 4; ++i) f.BeReady(20 + i);
  std::vector<NodeId> workers;
  for (const MicroBatchOwner& owner : f.scheduler->view().owners) {
    if (workers.empty() || workers.back() != owner.worker) workers.push_back(owner.worker);
  }
  CHECK(workers == std::vector{f.NodeFor(20), f.NodeFor(22), f.NodeFor(21), f.NodeFor(23)});
}

TEST_CASE("a worker that reads other data ends a run that has not begun, and is named") {
  Fixture f;
  f.Join(20, Role::kWorker);
  f.From(20, Ready{.data_fingerprint = 43});
  REQUIRE(f.scheduler->phase() == Scheduler::Phase::kStopping);
  CHECK(f.scheduler->stop().text.find("worker 0") != std::string::npos);
}

TEST_CASE("a joiner that reads other data is turned away, and the run goes on") {
  Fixture f;
  f.StartAll();
  f.Join(22, Role::kWorker);
  f.From(22, Ready{.data_fingerprint = 43});
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  REQUIRE(f.recorder.LastTo<Refused>(Incarnation(22)) != nullptr);
  CHECK(f.recorder.LastTo<Refused>(Incarnation(22))->reason.find("other data") !=
        std::string::npos);
}

TEST_CASE("a status can be asked of a run whose hosts have strange names") {
  Fixture f;
  f.From(20, Register{.role = Role::kWorker, .host = "\xff\xfe"});
  f.From(99, StatusRequest{});
  CHECK(f.recorder.LastTo<StatusReport>(Incarnation(99)) != nullptr);
}

TEST_CASE("messages of strangers and of other jobs change nothing") {
  Fixture f;
  f.StartAll();
  f.From(99, Failure{"boom"});
  f.scheduler->OnMessage(f.now, {.job = JobId(8),
                                 .sender = {kUnknownNode, Incarnation(20), 0},
                                 .receiver = f.self,
                                 .message = Failure{"boom"}});
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  for (const uint64_t worker : {20, 21}) f.From(worker, Failure{"loss is not a number"});
  CHECK(f.scheduler->stop().text.find("loss is not a number") != std::string::npos);
}

TEST_CASE("an interrupted run waits for everybody to leave, but not for ever") {
  Fixture f(MakePlan(2, 1));
  f.StartAll();
  f.scheduler->End(f.now, StopReason::kInterrupted, "interrupted");
  f.From(10, Bye{});
  f.From(20, Bye{});
  CHECK_FALSE(f.scheduler->is_finished());
  SUBCASE("the last one leaves") {
    f.From(21, Bye{});
    CHECK(f.scheduler->is_finished());
  }
  SUBCASE("the last one hangs") {
    f.now += milliseconds(501);
    f.scheduler->Tick(f.now);
    CHECK(f.scheduler->is_finished());
  }
}

TEST_CASE("a request for scalars beyond the job or between blocks gets no answer") {
  Fixture f;
  f.StartAll();
  f.From(10, ScalarsRequest{Step(1)});
  f.From(10, ScalarsRequest{Step(4096)});
  CHECK(f.recorder.LastTo<Scalars>(Incarnation(10)) == nullptr);
  f.From(10, ScalarsRequest{Step(0)});
  CHECK(f.recorder.LastTo<Scalars>(Incarnation(10))->steps.size() == 1000);
}

TEST_CASE("what all have committed counts once every primary has said so under the view") {
  Fixture f;
  f.StartAll();
  f.From(10, Progress{Version(5), {}});
  CHECK(f.scheduler->committed() == Version(0));
  f.From(11, Progress{Version(4), {}});
  CHECK(f.scheduler->committed() == Version(4));
  f.Say(11, Progress{Version(9), {}}, 0, ViewId{0, 1});  // of an earlier view
  CHECK(f.scheduler->committed() == Version(4));
}

TEST_CASE("metric rows are reported once and in order, and a lost one is left out") {
  Fixture f;
  f.StartAll();
  f.From(11, Progress{Version(2), {{.step = Step(0)}, {.step = Step(1)}}});
  f.From(11, Progress{Version(2), {{.step = Step(0)}, {.step = Step(1)}}});
  CHECK(f.recorder.LastTo<ProgressAck>(Incarnation(11))->next_row == Step(2));
  f.From(11, Progress{Version(5), {{.step = Step(4)}}});
  CHECK(f.recorder.rows == std::vector{Step(0), Step(1), Step(4)});
}

}  // namespace
}  // namespace pando
