// Reports of silence between two peers (P23), and the views that follow.
#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/scheduler/scheduler_fixture.h"

namespace pando {
namespace {

TEST_CASE("a backup that its primary does not hear is a backup no longer, and one again later") {
  Fixture f(MakePlan(1, 2));
  f.StartAll();
  const ShardPlacement placement = f.scheduler->view().shards[0];
  const PeerId backup = placement.in_sync_backups.at(0);
  f.From(placement.primary.incarnation.value(), PeerSilent{backup, 2000});
  CHECK(f.scheduler->view().shards[0].in_sync_backups.empty());
  CHECK(f.scheduler->view().shards[0].syncing_backups.empty());
  CHECK_FALSE(f.recorder.HasEvent("dead"));
  f.Wait(std::chrono::seconds(6));
  f.Sync();
  CHECK(f.scheduler->view().shards[0].in_sync_backups.size() == 1);
}

TEST_CASE("a worker that does not hear a server is given up, the server if two do not") {
  Fixture f(MakePlan(3, 3));
  f.StartAll();
  f.Wait(milliseconds(1100));
  const PeerId server = f.scheduler->view().shards[0].primary;
  f.From(20, PeerSilent{server, 2000});
  CHECK(f.NodeFor(20) == kUnknownNode);
  CHECK(f.recorder.faults.back().detected_by == "lease");
  CHECK(f.IsNamed(server.incarnation.value()));
  f.From(21, PeerSilent{server, 2000});
  CHECK(f.NodeFor(21) != kUnknownNode);
  CHECK_FALSE(f.IsNamed(server.incarnation.value()));
}

TEST_CASE("a worker that joins again without hearing a server is one worker all the same") {
  Fixture f(MakePlan(3, 3));
  f.StartAll();
  f.Wait(milliseconds(1100));
  const PeerId server = f.scheduler->view().shards[0].primary;
  const Register again{.role = Role::kWorker, .host = "h", .process_id = 120};
  f.From(20, PeerSilent{server, 2000});
  f.From(31, again);
  f.BeReady(31);
  f.Wait(milliseconds(10));
  CHECK(f.CountShares(31) > 0);
  f.From(31, PeerSilent{server, 2000});
  CHECK(f.NodeFor(31) == kUnknownNode);
  CHECK(f.IsNamed(server.incarnation.value()));
  f.From(32, again);
  f.BeReady(32);
  f.Wait(std::chrono::seconds(4));
  CHECK(f.CountShares(32) == 0);  // avoided for a while
  f.Wait(std::chrono::seconds(2));
  CHECK(f.CountShares(32) > 0);
}

TEST_CASE("the only worker joins again over new connections, and then the server has to") {
  Fixture f(MakePlan(1, 3));
  f.StartAll();
  f.Wait(milliseconds(1100));
  const PeerId server = f.scheduler->view().shards[0].primary;
  f.From(20, PeerSilent{server, 2000});
  f.From(31, Register{.role = Role::kWorker, .host = "h", .process_id = 120});
  f.BeReady(31);
  f.Wait(milliseconds(10));
  f.From(31, PeerSilent{server, 2000});
  CHECK(f.CountShares(31) == 8);
  CHECK_FALSE(f.IsNamed(server.incarnation.value()));
}

TEST_CASE("replicas that do not hear each other are replicas again later") {
  Fixture f(MakePlan(1, 2));
  f.StartAll();
  f.Wait(milliseconds(300));
  for (const ShardPlacement& placement : std::vector(f.scheduler->view().shards)) {
    for (const PeerId& backup : placement.in_sync_backups)
      f.From(placement.primary.incarnation.value(), PeerSilent{backup, 2000});
  }
  for (const ShardPlacement& placement : f.scheduler->view().shards)
    REQUIRE(placement.in_sync_backups.empty());
  f.Wait(std::chrono::seconds(6));
  f.Sync();
  for (const ShardPlacement& placement : f.scheduler->view().shards)
    CHECK(placement.in_sync_backups.size() == 1);
}

TEST_CASE(
    "of two servers that need each other's values and do not hear each other one is given up") {
  JobPlan plan = MakePlan(1, 2);
  plan.job.optimizer.clip_norm = 1;
  Fixture f(std::move(plan));
  f.StartAll();
  f.Wait(milliseconds(1100));
  const std::vector<ShardPlacement> before = f.scheduler->view().shards;
  const PeerId reporter = before[0].primary;
  const PeerId peer = before[0].in_sync_backups.at(0);
  REQUIRE(std::ranges::any_of(before, [&](const auto& p) { return p.primary.node == peer.node; }));
  f.From(reporter.incarnation.value(), PeerSilent{peer, 2000});
  CHECK_FALSE(f.IsNamed(reporter.incarnation.value()));
  CHECK(f.recorder.faults.back().detected_by == "lease");
  for (const ShardPlacement& placement : f.scheduler->view().shards)
    CHECK(placement.primary.node == peer.node);  // nothing was lost: it had replicas of all
  CHECK(f.scheduler->view().generation == 0);
}

TEST_CASE("a worker is not given up for a server that is silent to all: the lease decides") {
  Fixture f(MakePlan(1, 1, 1));
  f.StartAll();
  f.Wait(milliseconds(2000), {10});
  f.From(20, PeerSilent{f.scheduler->view().shards[0].primary, 2000});
  CHECK_FALSE(f.recorder.HasEvent("dead"));
  CHECK(f.CountShares(20) == 8);
  f.Wait(milliseconds(2500), {10});
  CHECK(f.NodeFor(20) != kUnknownNode);
  CHECK(f.WaitingText() == "no server");
}

TEST_CASE("after the scheduler paused it does not act on reports of silence yet") {
  Fixture f(MakePlan(1, 1, 1));
  f.StartAll();
  f.now += std::chrono::seconds(3);
  f.scheduler->Tick(f.now);
  f.From(20, PeerSilent{f.scheduler->view().shards[0].primary, 3000});
  CHECK_FALSE(f.recorder.HasEvent("dead"));
}

TEST_CASE("a lonely server has a longer lease") {
  Fixture f(MakePlan(1, 1));
  f.StartAll();
  f.Wait(milliseconds(3500), {10});
  CHECK_FALSE(f.recorder.HasEvent("dead"));
  f.Wait(milliseconds(1000), {10});
  CHECK(f.recorder.HasEvent("dead"));
}

}  // namespace
}  // namespace pando
