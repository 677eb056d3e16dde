// The parts that make views, each alone: OwnerPlan, ViewMaker, ViewPublisher.
#include <doctest/doctest.h>

#include "tests/scheduler/parts_fixture.h"

namespace pando {
namespace {

using std::chrono::seconds;

struct ViewsFixture : PartsFixture {
  // All of the job's members are ready, and have the first view.
  void Start() {
    server = Add(10, Role::kServer);
    Add(11, Role::kServer);
    worker = Add(20, Role::kWorker);
    Add(21, Role::kWorker);
    parts.phase.StartTraining(now);
    Publish(parts.view_maker.MakeFirst(now));
  }
  void Publish(View next) {
    parts.publisher.Publish(now, std::move(next));
    parts.progress.OnView();
    parts.owners.OnView(now);
  }
  uint32_t CountShares(const PeerId& of) const {
    return static_cast<uint32_t>(
        std::ranges::count(parts.views.view().owners, of.node, &MicroBatchOwner::worker));
  }
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
  f.parts.owners.OnHeartbeat(f.worker.node, {.micro_batch_us = 1000});
  f.parts.owners.OnHeartbeat(f.parts.members.Find(Incarnation(21))->peer.node,
                             {.micro_batch_us = 9000});
  for (const MicroBatchOwner& owner : f.parts.owners.NextOwners(f.now))
    CHECK(owner.previous == kUnknownNode);
}

TEST_CASE("a view is requested when other shares would make a step clearly faster") {
  ViewsFixture f;
  f.Start();
  f.parts.views.DropRequest();
  const NodeId slow = f.parts.members.Find(Incarnation(21))->peer.node;
  f.parts.owners.OnHeartbeat(f.worker.node, {.micro_batch_us = 100'000});
  f.parts.owners.OnHeartbeat(slow, {.micro_batch_us = 400'000});
  f.parts.owners.Tick(f.now);
  f.parts.owners.Tick(f.now + seconds(5));  // measures from here on
  CHECK(f.parts.views.due_at() == kNever);
  std::set<PeerId> primaries;
  for (const ShardPlacement& placement : f.parts.views.view().shards)
    primaries.insert(placement.primary);
  for (const PeerId& primary : primaries) {
    f.server = primary;
    f.Commit(5);
  }
  f.parts.owners.Tick(f.now + seconds(10));
  CHECK(f.parts.views.due_at() == f.now + seconds(10));
  uint32_t shares_of_slow = 0;
  for (const MicroBatchOwner& owner : f.parts.owners.NextOwners(f.now + seconds(10)))
    shares_of_slow += owner.worker == slow;
  CHECK(shares_of_slow < 4);
}

// ---- ViewMaker, ViewPublisher -------------------------------------------------------------------

TEST_CASE("a view is repeated until it is acknowledged, and made only if something has changed") {
  ViewsFixture f;
  f.Start();
  f.parts.publisher.RepeatTo(f.worker);
  CHECK(f.SentTo<ViewUpdate>(f.worker).size() == 1);
  const ViewId id = f.parts.views.view().id;
  f.parts.publisher.OnViewAck(f.now, {.sender = f.worker, .receiver = f.self}, {id, 0});
  f.parts.publisher.RepeatTo(f.worker);
  CHECK(f.SentTo<ViewUpdate>(f.worker).empty());
  f.parts.views.RequestView(f.now);
  const std::optional<View> same = f.parts.view_maker.MakeDue(f.now);
  REQUIRE(same);
  CHECK_FALSE(f.parts.publisher.IsNews(*same));
  f.Add(22, Role::kWorker);
  f.parts.views.RequestView(f.now);
  const std::optional<View> next = f.parts.view_maker.MakeDue(f.now);
  REQUIRE(next);
  CHECK(f.parts.publisher.IsNews(*next));
  CHECK(next->id > id);
  CHECK(next->nodes.size() == 5);
}

TEST_CASE("a member that has one of the last views gets the difference, another the whole (P17a)") {
  ViewsFixture f;
  f.Start();
  const ViewId id = f.parts.views.view().id;
  f.parts.publisher.OnViewAck(f.now, {.sender = f.worker, .receiver = f.self}, {id, 0});
  f.Add(22, Role::kWorker);
  f.parts.views.RequestView(f.now);
  f.Publish(*f.parts.view_maker.MakeDue(f.now));
  f.parts.publisher.RepeatTo(f.worker);
  const std::vector<ViewDelta> deltas = f.SentTo<ViewDelta>(f.worker);
  REQUIRE(deltas.size() == 1);
  CHECK(deltas[0].change->base == id);
  CHECK(deltas[0].change->changed.size() == 1);
  CHECK(deltas[0].change->hash == f.parts.views.shared().hash());
  f.parts.publisher.RepeatTo(f.server);  // it was sent none before
  CHECK(f.SentTo<ViewUpdate>(f.server).size() == 1);
  f.Add(23, Role::kWorker);
  f.parts.views.RequestView(f.now);
  f.Publish(*f.parts.view_maker.MakeDue(f.now));
  f.parts.publisher.RepeatTo(f.server);  // its acknowledgement may be on its way
  CHECK(f.SentTo<ViewDelta>(f.server).size() == 1);
  f.parts.publisher.RepeatTo(f.server);
  CHECK(f.SentTo<ViewUpdate>(f.server).size() == 1);
}

TEST_CASE("a view that is not acknowledged is repeated less and less often") {
  ViewsFixture f;
  f.Start();
  ViewPublisher& publisher = f.parts.publisher;
  std::vector<Micros> times;
  for (Micros at = f.now; at < f.now + seconds(10); at += milliseconds(100)) {
    if (publisher.TakeRepeat(at)) times.push_back(at - f.now);
  }
  CHECK(times == std::vector<Micros>{milliseconds(0), milliseconds(200), milliseconds(600),
                                     milliseconds(1400), milliseconds(3000), milliseconds(6000),
                                     milliseconds(9000)});
}

TEST_CASE("no view is made while a rollback is pending") {
  ViewsFixture f;
  f.Start();
  f.parts.views.RequestView(f.now);
  CHECK(f.parts.view_maker.NextDeadline() == f.now);
  f.parts.phase.PlanRollback(f.now, "a test");
  CHECK(f.parts.view_maker.NextDeadline() == kNever);
  CHECK_FALSE(f.parts.view_maker.MakeDue(f.now));
  CHECK(f.parts.publisher.WaitingText() == "restoring the last snapshot");
}

TEST_CASE("a shard without a server in sync makes the run begin again") {
  ViewsFixture f;
  f.Start();
  f.parts.membership.Forget(f.parts.members.Find(Incarnation(10))->peer.node);
  f.parts.membership.Forget(f.parts.members.Find(Incarnation(11))->peer.node);
  f.parts.views.RequestView(f.now);
  CHECK_FALSE(f.parts.view_maker.MakeDue(f.now));
  CHECK(f.parts.phase.is_rolling_back());
  CHECK(f.parts.publisher.WaitingText() == "no server");
}

TEST_CASE("the first generation begins when the last of the job's nodes is ready") {
  ViewsFixture f;
  f.Add(10, Role::kServer);
  CHECK_FALSE(f.parts.view_maker.IsComplete());
  CHECK(f.parts.publisher.WaitingText() == "for 1 of 2 servers, 0 of 2 workers");
  f.Start();
  CHECK(f.parts.view_maker.IsComplete());
  CHECK(f.parts.views.view().id.number == 1);
  CHECK(f.parts.views.view().generation == 0);
}

TEST_CASE("a rollback begins a higher generation and trains again") {
  ViewsFixture f;
  f.Start();
  f.parts.phase.StartCollecting(f.now);
  CHECK_FALSE(f.parts.view_maker.MayRollBack(f.now));
  f.parts.phase.PlanRollback(f.now, "a test");
  REQUIRE(f.parts.view_maker.MayRollBack(f.now));
  CHECK(f.parts.phase.RollBack() == "a test");
  CHECK(f.parts.phase.is_training());
  CHECK_FALSE(f.parts.phase.is_rolling_back());
  const View first = f.parts.view_maker.MakeFirst(f.now);
  CHECK(first.generation == 1);
  CHECK(first.restore == SnapshotRef{});
}

}  // namespace
}  // namespace pando
