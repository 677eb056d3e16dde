#include "scheduler/scheduler.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "proto/message_limits.h"

namespace pando {
namespace {

using std::chrono::milliseconds;

class Recorder : public Outbox, public RunObserver {
 public:
  void Send(Envelope envelope) override { sent.push_back(std::move(envelope)); }
  void OnEvent(Micros, const RunEvent& event) override { events.push_back(event); }
  void OnStepMetrics(Micros, const StepMetrics&) override {}
  void OnEvaluation(Micros, const EvaluationSummary&) override {}
  void OnFinalWeights(Micros, const FloatBuffer&) override {}

  template <class M>
  const M* LastTo(Incarnation to) const {
    for (auto it = sent.rbegin(); it != sent.rend(); ++it) {
      if (it->receiver.incarnation == to && std::holds_alternative<M>(it->message))
        return &std::get<M>(it->message);
    }
    return nullptr;
  }
  std::vector<Envelope> sent;
  std::vector<RunEvent> events;
};

JobPlan TwoWorkersOneServer() {
  Job job;
  job.workers = 2;
  job.servers = 1;
  job.steps = 10;
  DataFacts data{.train_samples = 1000, .test_samples = 100, .fingerprint = 42};
  return JobPlan(job, data, TensorLayout({{.name = "w", .shape = {20}}, MetricTensorSpec()}));
}

constexpr PeerId kScheduler{kSchedulerNode, Incarnation(1), 0};

class Fixture {
 public:
  Fixture()
      : scheduler({.self = kScheduler, .job = JobId(9), .job_toml = "toml"}, plan, recorder,
                  recorder) {}

  void From(Incarnation who, Message message, JobId job = JobId(9)) {
    scheduler.OnMessage(now, {.job = job,
                              .sender = {kUnknownNode, who, 0},
                              .receiver = kScheduler,
                              .message = std::move(message)});
    scheduler.Tick(now);
  }
  void Register(Incarnation who, Role role) {
    pando::Register registration{.role = role, .host = "h", .process_id = 7};
    if (role == Role::kServer) registration.lane_endpoints = {"tcp://127.0.0.1:1"};
    From(who, registration, JobId(0));
  }
  void StartAll() {
    Register(Incarnation(10), Role::kServer);
    Register(Incarnation(20), Role::kWorker);
    Register(Incarnation(21), Role::kWorker);
    for (uint64_t who : {10, 20, 21}) From(Incarnation(who), Ready{.data_fingerprint = 42});
  }
  void Beat(std::initializer_list<uint64_t> who) {
    for (uint64_t w : who) From(Incarnation(w), Heartbeat{});
  }

  JobPlan plan = TwoWorkersOneServer();
  Recorder recorder;
  Scheduler scheduler;
  Micros now{1'000'000};
};

TEST_CASE("a repeated registration gets the same welcome") {
  Fixture f;
  f.Register(Incarnation(20), Role::kWorker);
  const NodeId node = f.recorder.LastTo<Welcome>(Incarnation(20))->node;
  f.Register(Incarnation(20), Role::kWorker);
  CHECK(f.recorder.LastTo<Welcome>(Incarnation(20))->node == node);
  CHECK(f.recorder.LastTo<Welcome>(Incarnation(20))->job_toml == "toml");
}

TEST_CASE("one more than the job wants is refused with a reason") {
  Fixture f;
  f.Register(Incarnation(20), Role::kWorker);
  f.Register(Incarnation(21), Role::kWorker);
  f.Register(Incarnation(22), Role::kWorker);
  REQUIRE(f.recorder.LastTo<Refused>(Incarnation(22)) != nullptr);
  CHECK(f.recorder.LastTo<Refused>(Incarnation(22))->reason.find("wants 2 workers") !=
        std::string::npos);
}

TEST_CASE("a run that can name no further process says so") {
  Fixture f;
  f.plan.job.lease_ms = 100;
  for (uint64_t i = 1; i < kNodesMax; ++i) {
    f.Register(Incarnation(1000 + i), Role::kWorker);
    for (int ticks = 0; ticks < 3; ++ticks) {  // its silence frees its place
      f.now += milliseconds(40);
      f.scheduler.Tick(f.now);
    }
  }
  f.Register(Incarnation(99), Role::kWorker);
  REQUIRE(f.recorder.LastTo<Refused>(Incarnation(99)) != nullptr);
  CHECK(f.recorder.LastTo<Refused>(Incarnation(99))->reason.find("65535 processes") !=
        std::string::npos);
}

TEST_CASE("training starts when everybody is ready, not before") {
  Fixture f;
  f.Register(Incarnation(10), Role::kServer);
  f.Register(Incarnation(20), Role::kWorker);
  f.Register(Incarnation(21), Role::kWorker);
  f.From(Incarnation(10), Ready{});
  f.From(Incarnation(20), Ready{.data_fingerprint = 42});
  CHECK(f.scheduler.phase() == Scheduler::Phase::kGathering);
  CHECK(f.scheduler.MissingText() == "1 of 1 servers, 1 of 2 workers");
  f.From(Incarnation(21), Ready{.data_fingerprint = 42});
  CHECK(f.scheduler.phase() == Scheduler::Phase::kTraining);
  REQUIRE(f.recorder.LastTo<ViewUpdate>(Incarnation(21)) != nullptr);
  CHECK(f.recorder.LastTo<ViewUpdate>(Incarnation(21))->view.owners.size() ==
        f.plan.job.micro_batches);
}

TEST_CASE("a worker that reads other data ends the run, and is named") {
  Fixture f;
  f.Register(Incarnation(20), Role::kWorker);
  f.From(Incarnation(20), Ready{.data_fingerprint = 43});
  REQUIRE(f.scheduler.phase() == Scheduler::Phase::kStopping);
  CHECK(f.scheduler.stop().text.find("worker 0") != std::string::npos);
}

TEST_CASE("a silent process is named within a second and a bit, and the run fails") {
  Fixture f;
  f.StartAll();
  while (f.scheduler.phase() == Scheduler::Phase::kTraining && f.now < Micros(3'000'000)) {
    f.now += milliseconds(50);
    f.Beat({10, 20});
  }
  REQUIRE(f.scheduler.phase() == Scheduler::Phase::kStopping);
  CHECK(f.now <= Micros(1'000'000) + milliseconds(1250));
  CHECK(f.scheduler.stop().reason == StopReason::kFailed);
  CHECK(f.scheduler.stop().text.find("worker 1 (process 7 on h)") != std::string::npos);
}

TEST_CASE("short leases run out as well when everybody is silent") {
  Fixture f;
  f.plan.job.lease_ms = 250;
  f.plan.job.heartbeat_ms = 100;
  f.StartAll();
  while (f.scheduler.phase() == Scheduler::Phase::kTraining && f.now < Micros(3'000'000)) {
    f.now = f.scheduler.NextDeadline();
    f.scheduler.Tick(f.now);
  }
  CHECK(f.scheduler.phase() >= Scheduler::Phase::kStopping);
  CHECK(f.now <= Micros(1'000'000) + milliseconds(400));
}

TEST_CASE("a status can be asked of a run whose hosts have strange names") {
  Fixture f;
  f.From(Incarnation(20), pando::Register{.role = Role::kWorker, .host = "\xff\xfe"}, JobId(0));
  f.From(Incarnation(99), StatusRequest{}, JobId(0));
  CHECK(f.recorder.LastTo<StatusReport>(Incarnation(99)) != nullptr);
}

TEST_CASE("after a pause of its own the scheduler judges nobody") {
  Fixture f;
  f.StartAll();
  f.now += std::chrono::seconds(10);  // stopped and continued; heartbeats still in the queue
  f.scheduler.Tick(f.now);
  CHECK(f.scheduler.phase() == Scheduler::Phase::kTraining);
}

TEST_CASE("messages of strangers, other jobs and other lives change nothing") {
  Fixture f;
  f.StartAll();
  f.From(Incarnation(99), Failure{"boom"});
  f.From(Incarnation(20), Failure{"boom"}, JobId(8));
  f.scheduler.OnMessage(f.now, {.job = JobId(9),
                                .sender = {kUnknownNode, Incarnation(20), 0},
                                .receiver = {kSchedulerNode, Incarnation(2), 0},
                                .message = Failure{"boom"}});
  CHECK(f.scheduler.phase() == Scheduler::Phase::kTraining);
  f.From(Incarnation(20), Failure{"loss is not a number"});
  CHECK(f.scheduler.stop().text.find("loss is not a number") != std::string::npos);
}

TEST_CASE("an interrupted run waits for everybody to leave, but not for ever") {
  Fixture f;
  f.StartAll();
  f.scheduler.End(f.now, StopReason::kInterrupted, "interrupted");
  f.From(Incarnation(10), Bye{});
  f.From(Incarnation(20), Bye{});
  CHECK_FALSE(f.scheduler.finished());
  SUBCASE("the last one leaves") {
    f.From(Incarnation(21), Bye{});
    CHECK(f.scheduler.finished());
  }
  SUBCASE("the last one hangs") {
    f.now += milliseconds(501);
    f.scheduler.Tick(f.now);
    CHECK(f.scheduler.finished());
  }
}

TEST_CASE("a request for scalars beyond the job or between blocks gets no answer") {
  Fixture f;
  f.StartAll();
  f.From(Incarnation(10), ScalarsRequest{Step(1)});
  f.From(Incarnation(10), ScalarsRequest{Step(4096)});
  CHECK(f.recorder.LastTo<Scalars>(Incarnation(10)) == nullptr);
  f.From(Incarnation(10), ScalarsRequest{Step(0)});
  CHECK(f.recorder.LastTo<Scalars>(Incarnation(10))->steps.size() == 10);
}

}  // namespace
}  // namespace pando
