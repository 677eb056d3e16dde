// The scheduler core with as many members as a large cluster has. They are stubs that answer what
// the core sends; time is virtual. The processor times that it prints are in bench/RESULTS.md.
#include <doctest/doctest.h>

#include <ctime>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"
#include "tests/scheduler/scheduler_fixture.h"

namespace pando {
namespace {

double ProcessorMs() { return 1000.0 * static_cast<double>(clock()) / CLOCKS_PER_SEC; }

// Keeps what the stubs have to know, and drops the rest: the views of 1,024 members are large.
class StubMembers : public Outbox {
 public:
  void Send(Envelope envelope) override {
    const PeerId& to = envelope.receiver;
    if (std::holds_alternative<Welcome>(envelope.message)) nodes[to.incarnation] = to.node;
    if (HoldsAny<ViewUpdate, ViewDelta>(envelope.message)) unacknowledged[to] = envelope.view;
    whole_views += std::holds_alternative<ViewUpdate>(envelope.message) ? 1 : 0;
    if (const auto* delta = std::get_if<ViewDelta>(&envelope.message)) last_change = *delta->change;
  }
  std::map<Incarnation, NodeId> nodes;
  std::map<PeerId, ViewId> unacknowledged;  // the newest view that a lane was sent
  uint64_t whole_views = 0;
  ViewChange last_change;
};

struct Cluster {
  Cluster(uint32_t workers, uint32_t servers, uint32_t lanes)
      : lane_count(lanes), plan(MakePlanFor(workers, servers)) {
    scheduler = std::make_unique<Scheduler>(
        Scheduler::Options{.self = self, .job = Fixture::kJob, .job_toml = "toml"}, plan, journal,
        recorder, members);
  }
  static JobPlan MakePlanFor(uint32_t workers, uint32_t servers) {
    const JobPlan small = MakePlan(workers, servers);
    Job job = small.job;
    job.micro_batches = workers;
    job.global_batch = workers;
    TensorLayout layout({{.name = "a", .shape = {1'000'000}}, MetricTensorSpec()});
    return JobPlan(job, small.data, std::move(layout));
  }

  void Say(Incarnation who, Message message, uint16_t lane = 0) {
    const auto node = members.nodes.find(who);
    scheduler->OnMessage(
        now, {.job = Fixture::kJob,
              .generation = scheduler->view().generation,
              .view = scheduler->view().id,
              .sender = {node == members.nodes.end() ? kUnknownNode : node->second, who, lane},
              .receiver = self,
              .message = std::move(message)});
    if (++messages % kMessagesPerTurn == 0) scheduler->Tick(now);
  }
  // The event loop takes as many messages at a time from its sockets while they come fast.
  static constexpr uint64_t kMessagesPerTurn = 16;

  static Incarnation Name(Role role, uint32_t i) {
    return Incarnation((role == Role::kServer ? 10'000 : 20'000) + i);
  }
  void Join(Role role, uint32_t i) {
    Register registration{
        .role = role, .host = "host" + std::to_string(i), .process_id = 1000 + i, .wanted_rank = i};
    if (role == Role::kServer) {
      for (uint32_t lane = 0; lane < lane_count; ++lane)
        registration.lane_endpoints.push_back("tcp://10.0." + std::to_string(i / 256) + "." +
                                              std::to_string(i % 256) + ":700" +
                                              std::to_string(lane));
    }
    Say(Name(role, i), registration);
    scheduler->Tick(now);
    Say(Name(role, i), Ready{.data_fingerprint = 42});
  }
  void StartAll() {
    for (uint32_t i = 0; i < plan.job.servers; ++i) Join(Role::kServer, i);
    for (uint32_t i = 0; i < plan.job.workers; ++i) Join(Role::kWorker, i);
    scheduler->Tick(now);
  }
  void HeartbeatOfAll(uint32_t first_worker = 0) {
    for (uint32_t i = 0; i < plan.job.servers; ++i) Say(Name(Role::kServer, i), Heartbeat{});
    for (uint32_t i = first_worker; i < plan.job.workers; ++i)
      Say(Name(Role::kWorker, i), Heartbeat{});
  }
  void Acknowledge() {
    for (const auto& [lane, view] : std::exchange(members.unacknowledged, {}))
      Say(lane.incarnation, ViewAck{view}, lane.lane);
    scheduler->Tick(now);
  }
  void ReportProgress(Version committed) {
    std::set<PeerId> lanes;
    for (const ShardPlacement& placement : scheduler->view().shards)
      lanes.insert(placement.primary);
    for (const PeerId& lane : lanes) Say(lane.incarnation, Progress{committed, {}}, lane.lane);
    scheduler->Tick(now);
  }

  const PeerId self{kSchedulerNode, Incarnation(1), 0};
  uint32_t lane_count;
  JobPlan plan;
  TestJournal journal;
  Recorder recorder;
  StubMembers members;
  std::unique_ptr<Scheduler> scheduler;
  Micros now{1'000'000};
  uint64_t messages = 0;
};

template <class Work>
double Measure(Work work) {
  const double start = ProcessorMs();
  work();
  return ProcessorMs() - start;
}

TEST_CASE("members that have a view get only what has changed, and deaths share views") {
  constexpr uint32_t kWorkers = 200;
  Cluster cluster(kWorkers, 8, 1);
  Scheduler& scheduler = *cluster.scheduler;
  cluster.StartAll();
  const auto settle = [&](uint32_t first_worker) {
    for (int i = 0; i < 20; ++i) {
      cluster.now += milliseconds(50);
      cluster.HeartbeatOfAll(first_worker);
      cluster.Acknowledge();
    }
  };
  settle(0);
  cluster.members.whole_views = 0;
  scheduler.OnDisconnect(cluster.now, Cluster::Name(Role::kWorker, 0));
  settle(1);
  CHECK(scheduler.view().nodes.size() == kWorkers + 8 - 1);
  CHECK(cluster.members.last_change.removed.size() == 1);
  CHECK(cluster.members.last_change.changed.empty());
  CHECK(cluster.members.last_change.shards.empty());

  const uint64_t before = scheduler.view().id.number;
  for (uint32_t i = 1; i < 100; ++i) {
    scheduler.OnDisconnect(cluster.now, Cluster::Name(Role::kWorker, i));
    if (i % 10 == 0) cluster.now += milliseconds(1);
    scheduler.Tick(cluster.now);
  }
  settle(100);
  CHECK(scheduler.view().nodes.size() == 100 + 8);
  CHECK(scheduler.view().id.number <= before + 3);
  CHECK(cluster.members.whole_views == 0);
}

TEST_CASE("512 servers and 512 workers join, make steps and lose one of them") {
  constexpr uint32_t kWorkers = 512;
  constexpr uint32_t kServers = 512;
  Cluster cluster(kWorkers, kServers, 2);
  Scheduler& scheduler = *cluster.scheduler;
  const double joins_ms = Measure([&] { cluster.StartAll(); });
  REQUIRE(scheduler.view().nodes.size() == kWorkers + kServers);
  const double acks_ms = Measure([&] { cluster.Acknowledge(); });

  constexpr int kRounds = 40;  // ten seconds of heartbeats
  const double heartbeats_ms = Measure([&] {
    for (int round = 0; round < kRounds; ++round) {
      cluster.now += milliseconds(250);
      cluster.HeartbeatOfAll();
      scheduler.Tick(cluster.now);
    }
  });
  CHECK(scheduler.view().nodes.size() == kWorkers + kServers);  // none is believed dead

  const double progress_ms = Measure([&] {
    for (uint64_t version = 1; version <= 10; ++version) cluster.ReportProgress(Version(version));
  });
  CHECK(scheduler.committed() == Version(10));

  const ViewId before = scheduler.view().id;
  const double death_ms = Measure([&] {
    scheduler.OnDisconnect(cluster.now, Cluster::Name(Role::kWorker, 0));
    for (int i = 0; i < 10; ++i) {
      cluster.now += milliseconds(100);
      cluster.HeartbeatOfAll(1);
      scheduler.Tick(cluster.now);
    }
  });
  CHECK(scheduler.view().id > before);
  CHECK(scheduler.view().nodes.size() == kWorkers + kServers - 1);
  MESSAGE("512 + 512 members, processor time: joins ", joins_ms, " ms, acknowledgements ", acks_ms,
          " ms, heartbeats at 4 Hz ", heartbeats_ms / (kRounds * 250.0) * 100,
          " % of a core, progress of a step ", progress_ms / 10, " ms, a death and its view ",
          death_ms, " ms");
}

}  // namespace
}  // namespace pando
