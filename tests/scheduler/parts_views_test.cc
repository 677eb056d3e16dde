// The parts that make views, each alone: OwnerPlan, ViewMaker.
#include <doctest/doctest.h>

#include "scheduler/view_maker.h"
#include "tests/scheduler/parts_fixture.h"

namespace pando {
namespace {

using std::chrono::seconds;

struct ViewsFixture : PartsFixture {
  ViewsFixture()
      : owners(run, silences, verification),
        requests(run, snapshots),
        final_weights(run, verification, snapshots),
        view_maker(run, {silences, evaluations, snapshots, ownership, requests, verification,
                         owners, final_weights}) {}
  // All of the job's members are ready.
  void Start() {
    server = Add(10, Role::kServer);
    Add(11, Role::kServer);
    worker = Add(20, Role::kWorker);
    Add(21, Role::kWorker);
    view_maker.OnMemberReady(now);
  }
  uint32_t CountShares(const PeerId& of) const {
    return static_cast<uint32_t>(
        std::ranges::count(run.view().owners, of.node, &MicroBatchOwner::worker));
  }
  OwnerPlan owners;
  SnapshotRequests requests;
  FinalWeights final_weights;
  ViewMaker view_maker;
};

// ---- OwnerPlan ---------------------------------------------------------------------------------

TEST_CASE("a worker that the others wait for is a straggler, by the clock of the step") {
  const NodeId fast(1), slow(2);
  const std::map<NodeId, uint32_t> shares{{fast, 4}, {slow, 4}};
  const Heartbeat waiting{.activity = Activity::kWaitingForParameters};
  const Heartbeat computing{.activity = Activity::kComputing};
  StragglerMeter meter;
  for (int i = 0; i < 20; ++i) {
    meter.Observe(fast, i % 4 == 0 ? computing : waiting);
    meter.Observe(slow, computing);
  }
  meter.Judge(shares, milliseconds(100));
  CHECK(meter.micro_batch_us(slow) == 25'000);
  CHECK(meter.micro_batch_us(fast) == 0);
  SUBCASE("it stays one while it has no share") {
    meter.Judge({{fast, 8}}, milliseconds(9));
    CHECK(meter.micro_batch_us(slow) == 25'000);
  }
  SUBCASE("it is none once it waits too: all wait for servers, say") {
    for (int i = 0; i < 20; ++i) {
      meter.Observe(fast, waiting);
      meter.Observe(slow, i % 2 == 0 ? computing : waiting);
    }
    meter.Judge(shares, milliseconds(100));
    CHECK(meter.micro_batch_us(slow) == 0);
  }
  SUBCASE("few heartbeats are no proof") {
    meter.Observe(fast, waiting);
    meter.Observe(slow, computing);
    meter.Judge(shares, milliseconds(100));
    CHECK(meter.micro_batch_us(slow) == 0);
  }
}

TEST_CASE("workers share evenly, and keep their shares while the workers stay") {
  ViewsFixture f;
  f.Start();
  CHECK(f.CountShares(f.worker) == 4);
  f.owners.OnHeartbeat(f.worker.node, {.micro_batch_us = 1000});
  f.owners.OnHeartbeat(f.run.members().Find(Incarnation(21))->peer.node, {.micro_batch_us = 9000});
  for (const MicroBatchOwner& owner : f.owners.NextOwners(f.now))
    CHECK(owner.previous == kUnknownNode);
}

TEST_CASE("a view is requested when other shares would make a step clearly faster") {
  ViewsFixture f;
  f.Start();
  f.run.views.DropRequest();
  const NodeId slow = f.run.members().Find(Incarnation(21))->peer.node;
  f.owners.OnHeartbeat(f.worker.node, {.micro_batch_us = 100'000});
  f.owners.OnHeartbeat(slow, {.micro_batch_us = 400'000});
  f.owners.Tick(f.now);
  f.owners.Tick(f.now + seconds(5));  // measures from here on
  CHECK(f.run.views.due_at() == kNever);
  std::set<PeerId> primaries;
  for (const ShardPlacement& placement : f.run.view().shards) primaries.insert(placement.primary);
  for (const PeerId& primary : primaries) {
    f.server = primary;
    f.Commit(5);
  }
  f.owners.Tick(f.now + seconds(10));
  CHECK(f.run.views.due_at() == f.now + seconds(10));
  uint32_t shares_of_slow = 0;
  for (const MicroBatchOwner& owner : f.owners.NextOwners(f.now + seconds(10)))
    shares_of_slow += owner.worker == slow;
  CHECK(shares_of_slow < 4);
}

// ---- ViewMaker ---------------------------------------------------------------------------------

TEST_CASE("a view is repeated until it is acknowledged, and made only if something has changed") {
  ViewsFixture f;
  f.Start();
  f.view_maker.RepeatTo(f.worker);
  CHECK(f.SentTo<ViewUpdate>(f.worker).size() == 1);
  const ViewId id = f.run.view().id;
  f.view_maker.OnViewAck(f.now, {.sender = f.worker, .receiver = f.self}, {id, 0});
  f.view_maker.RepeatTo(f.worker);
  CHECK(f.SentTo<ViewUpdate>(f.worker).empty());
  f.run.views.RequestView(f.now);
  f.view_maker.Tick(f.now);
  CHECK(f.run.view().id == id);
  f.Add(22, Role::kWorker);
  f.run.views.RequestView(f.now);
  f.view_maker.Tick(f.now);
  CHECK(f.run.view().id > id);
  CHECK(f.run.view().nodes.size() == 5);
}

TEST_CASE("no view is made while a rollback is pending") {
  ViewsFixture f;
  f.Start();
  f.run.views.RequestView(f.now);
  CHECK(f.view_maker.NextDeadline() == f.now);
  f.run.rollback.Plan(f.now, "a test");
  CHECK(f.view_maker.NextDeadline() == kNever);
  CHECK(f.view_maker.WaitingText() == "restoring the last snapshot");
}

TEST_CASE("a shard without a server in sync makes the run begin again") {
  ViewsFixture f;
  f.Start();
  f.run.membership.Forget(f.run.members().Find(Incarnation(10))->peer.node);
  f.run.membership.Forget(f.run.members().Find(Incarnation(11))->peer.node);
  f.run.views.RequestView(f.now);
  f.view_maker.Tick(f.now);
  CHECK(f.run.rollback.is_pending());
  CHECK(f.view_maker.WaitingText() == "no server");
}

TEST_CASE("the first generation begins when the last of the job's nodes is ready") {
  ViewsFixture f;
  f.Add(10, Role::kServer);
  f.view_maker.OnMemberReady(f.now);
  CHECK(f.run.phase.is_gathering());
  CHECK(f.view_maker.WaitingText() == "for 1 of 2 servers, 0 of 2 workers");
  f.Start();
  CHECK(f.run.phase.is_training());
  CHECK(f.run.view().id.number == 1);
  CHECK(f.run.view().generation == 0);
}

TEST_CASE("a rollback begins a higher generation and trains again") {
  ViewsFixture f;
  f.Start();
  f.run.phase.StartCollecting(f.now);
  f.run.rollback.Plan(f.now, "a test");
  f.view_maker.Tick(f.now);
  CHECK(f.run.phase.is_training());
  CHECK(f.run.view().generation == 1);
  CHECK(f.run.view().restore == SnapshotRef{});
  CHECK(f.recorder.HasEvent("rollback"));
  CHECK_FALSE(f.run.rollback.is_pending());
}

}  // namespace
}  // namespace pando
