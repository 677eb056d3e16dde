#include "worker/allreduce/group_session.h"

#include <doctest/doctest.h>

#include "tests/worker/session_fixture.h"

namespace pando {
namespace {

using std::chrono::milliseconds;

// Worker 1 of two, which own micro-batches 0-3 and 4-7; the lane is worker 0's process.
class GroupFixture : private Outbox, private GroupPort {
 public:
  explicit GroupFixture(const Job& job = SessionFixture::SmallJob())
      : plan(job, {.train_samples = 800, .test_samples = 100},
             TensorLayout({{.name = "w", .shape = {1600}}, MetricTensorSpec()})),
        session({{kSelf, kScheduler, JobId(7)}, {.kind = "test"}}, plan, compute, *this, *this) {
    REQUIRE(plan.shards.shard_count() == 2);
  }

  View MakeView(uint64_t number) const {
    View view{.id = {1, number}};
    view.nodes.push_back(
        {.node = kLaneA.node, .incarnation = kLaneA.incarnation, .role = Role::kServer});
    for (uint32_t i = 0; i < 2; ++i)
      view.nodes.push_back({.node = kWorkers[i], .incarnation = Incarnation(100 + i), .rank = i});
    view.shards = {{.primary = kLaneA}, {.primary = kLaneA}};
    for (uint32_t i : {0, 0, 0, 0, 1, 1, 1, 1}) view.owners.push_back({.worker = kWorkers[i]});
    return view;
  }
  void Receive(const PeerId& from, Message message) {
    session.OnMessage(now, {.job = JobId(7),
                            .generation = session.view().generation,
                            .view = session.view().id,
                            .sender = from,
                            .receiver = kSelf,
                            .message = std::move(message)});
    session.Tick(now);
  }
  void Wait(Micros time) {
    const Micros end = now + time;
    int turns_left = 1000;
    while (session.NextDeadline() <= end) {
      REQUIRE(turns_left-- > 0);  // a deadline that a tick does not move would spin the loop
      now = std::max(now + Micros(1), session.NextDeadline());
      session.Tick(now);
    }
    now = end;
    session.Tick(now);
  }
  void GiveParams(uint32_t shard, uint64_t version) {
    auto floats = std::make_shared<FloatBuffer>(plan.shards.range(ShardId(shard)).size());
    Receive(kLaneA, Params{{{ShardId(shard), Version(version), ToBlob(SharedBuffer(floats))}}});
  }
  void Start(uint64_t version = 0) {
    View view = MakeView(1);
    view.restore.version = Version(version);
    Receive(kScheduler, ViewUpdate{view});
    for (uint32_t shard : {0, 1}) GiveParams(shard, version);
  }
  void Make(uint64_t version) {
    for (uint32_t shard : {0, 1}) session.OnMade(now, ShardId(shard), Version(version));
    session.Tick(now);
  }
  template <class M>
  std::vector<M> Take() {
    std::vector<M> taken;
    for (Envelope& envelope : sent_) {
      if (auto* message = std::get_if<M>(&envelope.message)) taken.push_back(std::move(*message));
    }
    std::erase_if(sent_, [](const Envelope& e) { return std::holds_alternative<M>(e.message); });
    return taken;
  }

  static constexpr PeerId kSelf{kWorkers[1], Incarnation(101), 0};
  const JobPlan plan;
  ComputeLog compute;
  Micros now{1'000'000};
  std::vector<Version> begun;     // what groups begin from
  std::vector<Version> versions;  // made whole

 private:
  void Send(Envelope envelope) override { sent_.push_back(std::move(envelope)); }
  void Begin(const View& view) override { begun.push_back(view.restore.version); }
  void OnVersion(Version version) override { versions.push_back(version); }
  std::vector<Envelope> sent_;

 public:
  GroupSession session;
};

using Calls = std::vector<ComputeLog::Call>;
const auto kOurs = MicroBatches({4, 5, 6, 7});

TEST_CASE("the group begins when the first version is whole, with two steps in hand") {
  GroupFixture f;
  f.session.Tick(f.now);
  CHECK(f.Take<Ready>().size() == 1);
  f.Wait(milliseconds(200));
  CHECK(f.Take<Ready>().size() == 1);  // until a view has us
  f.Receive(kScheduler, ViewUpdate{f.MakeView(1)});
  REQUIRE(f.Take<Pull>().size() == 1);
  f.GiveParams(1, 0);
  CHECK(f.begun.empty());
  f.Wait(milliseconds(500));
  const std::vector<Pull> again = f.Take<Pull>();
  REQUIRE(again.size() == 1);
  REQUIRE(again[0].items.size() == 1);  // what is missing
  CHECK(again[0].items[0].shard == ShardId(0));
  f.GiveParams(0, 0);
  CHECK(f.begun == std::vector{Version(0)});
  CHECK(f.compute.calls == Calls{{Step(0), kOurs}, {Step(1), kOurs}});
  f.Make(1);
  CHECK(f.versions == std::vector{Version(1)});
  CHECK(f.compute.calls.back() == ComputeLog::Call{Step(2), kOurs});
  f.Wait(milliseconds(5000));
  CHECK(f.Take<Ready>().empty());
  CHECK(f.Take<Pull>().empty());
}

TEST_CASE("a run that goes on begins at its snapshot's step, and ends with its last") {
  Job job = SessionFixture::SmallJob();
  job.steps = 42;
  GroupFixture f(job);
  f.Start(40);
  CHECK(f.begun == std::vector{Version(40)});
  CHECK(f.compute.calls == Calls{{Step(40), kOurs}, {Step(41), kOurs}});
  f.Make(41);
  f.Make(42);
  CHECK(f.compute.calls.size() == 2);
}

TEST_CASE("a result is reported when the ranks agree on its version, and again on request") {
  GroupFixture f;
  f.Start();
  f.Make(1);
  f.Receive(kScheduler, Evaluate{Version(1), 0, 0, 100});
  CHECK(f.compute.slices == std::vector<uint32_t>{0});
  CHECK(f.Take<Pull>().back().items.size() == 2);
  for (uint32_t shard : {0, 1}) f.GiveParams(shard, 1);
  CHECK(f.compute.evaluation_parameters == std::vector{Version(1), Version(1)});
  f.session.OnComputeEvent(f.now, EvaluationResult{.version = Version(1), .sample_count = 100});
  f.Receive(kScheduler, Evaluate{Version(1), 0, 0, 100});
  CHECK(f.Take<EvaluationResult>().empty());
  f.session.OnAgreed(f.now, Version(1));
  CHECK(f.Take<EvaluationResult>().size() == 1);
  f.Receive(kScheduler, Evaluate{Version(1), 0, 0, 100});
  CHECK(f.Take<EvaluationResult>().size() == 1);
  CHECK(f.compute.slices.size() == 1);
  f.Receive(kScheduler, Evaluate{Version(1), 1, 100, 101});  // beyond the test set
  CHECK(f.compute.slices.size() == 1);
}

TEST_CASE("a broken group waits for the scheduler's Stop, and reports a failure if none comes") {
  GroupFixture f;
  f.Start();
  f.session.OnBroken(f.now, Unavailable("worker 0 hung up"));
  f.Wait(2 * milliseconds(f.plan.job.lease_ms) - milliseconds(1));
  CHECK(f.Take<Failure>().empty());
  f.Wait(milliseconds(2));
  const std::vector<Failure> failures = f.Take<Failure>();
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].text == "worker 0 hung up");
  CHECK(failures[0].kind == FailureKind::kMachine);
  f.Wait(milliseconds(200));
  CHECK(f.Take<Failure>().size() == 1);
  f.Receive(kScheduler, Stop{StopReason::kFailed, "worker 0 is gone"});
  CHECK(f.session.finished());
  CHECK(f.Take<Bye>().size() == 1);
  CHECK(f.compute.abandoned == std::vector{Step(0)});
}

TEST_CASE("ranks that differ are the run's failure, at once") {
  GroupFixture f;
  f.Start();
  f.session.OnBroken(f.now, Internal("rank 1 differs"));
  f.session.Tick(f.now);
  const std::vector<Failure> failures = f.Take<Failure>();
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].kind == FailureKind::kTraining);
}

TEST_CASE("a scheduler that comes back may name the same group again, and no other one") {
  GroupFixture f;
  f.Start();
  f.Receive(kScheduler, ViewUpdate{f.MakeView(2)});
  f.Wait(milliseconds(5000));
  CHECK(f.Take<Failure>().empty());
  View other = f.MakeView(3);
  other.owners[4].worker = kWorkers[0];
  f.Receive(kScheduler, ViewUpdate{other});
  f.Wait(milliseconds(5000));
  CHECK_FALSE(f.Take<Failure>().empty());
}

TEST_CASE("the heartbeat says whether this rank computes or waits for the others") {
  GroupFixture f;
  CHECK(f.session.CurrentActivity(f.now).activity == Activity::kStarting);
  f.Start();
  CHECK(f.session.CurrentActivity(f.now).activity == Activity::kComputing);
  f.session.OnComputeEvent(f.now, StepComputed{Step(0)});
  f.now += milliseconds(70);
  const Heartbeat waiting = f.session.CurrentActivity(f.now);
  CHECK(waiting.activity == Activity::kWaitingForParameters);
  CHECK(waiting.waiting_ms == 70);
  CHECK(waiting.step == Step(0));
  f.Make(1);
  CHECK(f.session.CurrentActivity(f.now).activity == Activity::kComputing);
  CHECK(f.session.CurrentActivity(f.now).step == Step(1));
  f.session.Leave(f.now);
  CHECK(f.session.CurrentActivity(f.now).activity == Activity::kLeaving);
}

}  // namespace
}  // namespace pando
