// Deaths, joins, drains, rollbacks: what views follow.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/scheduler/scheduler_fixture.h"

namespace pando {
namespace {

TEST_CASE("a silent worker is dead within a second and a bit, and the others do its work") {
  Fixture f;
  f.StartAll();
  const Micros silent_since = f.now;
  while (f.CountShares(21) > 0 && f.now < silent_since + std::chrono::seconds(3))
    f.Wait(milliseconds(50), {21});
  CHECK(f.now <= silent_since + milliseconds(1250));
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  CHECK(f.CountShares(20) == 8);
  for (const MicroBatchOwner& owner : f.scheduler->view().owners)
    CHECK(owner.first_step == Step(0));
  REQUIRE(f.recorder.faults.size() >= 1);
  CHECK(f.recorder.faults[0].target == "worker 1");
  CHECK(f.recorder.faults[0].detected_by == "lease");
}

TEST_CASE("short leases run out as well") {
  Fixture f;
  f.plan.job.lease_ms = 250;
  f.plan.job.heartbeat_ms = 100;
  f.StartAll();
  const Micros start = f.now;
  while (!f.recorder.HasEvent("dead") && f.now < start + std::chrono::seconds(2)) {
    f.now = f.scheduler->NextDeadline();
    f.scheduler->Tick(f.now);
    f.From(20, Heartbeat{});
  }
  CHECK(f.now <= start + milliseconds(400));
}

TEST_CASE("a scheduler without heartbeats suspends leases, and finds the dead once they arrive") {
  Fixture f;
  f.StartAll();
  f.Commit(50);
  f.Wait(milliseconds(600), {10, 11, 20, 21});
  f.scheduler->OnDisconnect(f.now, Incarnation(11));  // a cable breaks connections too
  f.Wait(std::chrono::seconds(5), {10, 11, 20, 21});
  CHECK_FALSE(f.recorder.HasEvent("dead"));
  CHECK(f.recorder.HasEvent("leases-suspended"));
  SUBCASE("all are well") {
    f.Wait(std::chrono::seconds(2));
    CHECK_FALSE(f.recorder.HasEvent("dead"));
    CHECK(f.scheduler->view().generation == 0);
    CHECK(f.scheduler->committed() == Version(50));
  }
  SUBCASE("some are dead") {
    f.Wait(milliseconds(900), {21});
    CHECK(f.NodeFor(21) != kUnknownNode);
    f.Wait(milliseconds(400), {21});
    CHECK(f.NodeFor(21) == kUnknownNode);
    CHECK(f.NodeFor(20) != kUnknownNode);
  }
  SUBCASE("a supervisor reports the dead process") {
    f.Exit(21, Role::kWorker);
    CHECK(f.NodeFor(21) == kUnknownNode);
    f.Wait(std::chrono::seconds(2), {10, 11, 20});
    CHECK(f.NodeFor(20) != kUnknownNode);  // a supervisor does not see a broken cable
  }
  SUBCASE("all are dead, and others come") {
    f.Add(12, Role::kServer);
    f.Add(22, Role::kWorker);
    f.Wait(std::chrono::seconds(6), {10, 11, 20, 21});
    CHECK(f.CountShares(22) == 8);
    CHECK(f.IsNamed(12));
    CHECK(f.NodeFor(10) == kUnknownNode);
    CHECK(f.scheduler->view().generation == 1);
    CHECK(f.WaitingText().empty());
  }
}

TEST_CASE("without heartbeats the scheduler sleeps between its checks") {
  Fixture f;
  f.StartAll();
  f.Wait(std::chrono::seconds(5), {10, 11, 20, 21});
  for (int i = 0; i < 100; ++i) {
    f.now = std::max(f.now, f.scheduler->NextDeadline());
    f.scheduler->Tick(f.now);
  }
  CHECK(f.now >= Micros(1'000'000) + std::chrono::seconds(12));
}

TEST_CASE("a newcomer that cannot begin leaves, and the run goes on") {
  Fixture f;
  f.StartAll();
  f.Join(22, Role::kWorker);
  f.From(22, Failure{"there is no data here"});
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  CHECK(f.recorder.HasEvent("failed"));
  CHECK(f.CountShares(20) == 4);
  for (const uint64_t worker : {20, 21}) f.From(worker, Failure{"a gradient is not a number"});
  CHECK(f.scheduler->phase() == Scheduler::Phase::kStopping);
}

const Failure kNoData{"the data end early", FailureKind::kMachine};

TEST_CASE("trouble of a worker's machine costs that worker, and the run goes on") {
  Fixture f(MakePlan(3, 1));
  f.StartAll();
  f.Commit(5);
  f.From(20, kNoData);
  REQUIRE(f.scheduler->phase() == Scheduler::Phase::kTraining);
  CHECK(f.recorder.HasEvent("failed"));
  CHECK(f.recorder.LastTo<Refused>(Incarnation(20)) != nullptr);
  f.Wait(milliseconds(10));
  CHECK(f.CountShares(20) == 0);
  SUBCASE("later trouble is another one") {
    f.Commit(6);
    f.From(21, kNoData);
    CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
    SUBCASE("and the last worker's is the run's end") {
      f.Commit(7);
      f.From(22, kNoData);
      CHECK(f.scheduler->phase() == Scheduler::Phase::kStopping);
    }
  }
  SUBCASE("the same trouble at the same step ends the run") {
    f.From(21, kNoData);
    CHECK(f.scheduler->phase() == Scheduler::Phase::kStopping);
    CHECK(f.scheduler->stop().text.find("worker 1 on h: the data end early") != std::string::npos);
  }
}

TEST_CASE("a machine whose workers all fail is not the run's end while there is another") {
  Fixture f;
  f.StartAll();
  f.Add(22, Role::kWorker, "other");
  f.Commit(5);
  f.From(20, kNoData);
  f.From(21, kNoData);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  f.Add(23, Role::kWorker);
  f.From(22, kNoData);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kStopping);
}

TEST_CASE("a worker's failure of a generation that is over changes nothing (P21)") {
  Fixture f(MakePlan(2, 2, 1));
  f.StartAll();
  const uint32_t before = f.scheduler->view().generation;
  f.Exit(11, Role::kServer);
  f.Add(12, Role::kServer);
  f.Wait(std::chrono::seconds(2));
  REQUIRE(f.scheduler->view().generation > before);
  f.scheduler->OnMessage(f.now, {.job = JobId(9),
                                 .generation = before,
                                 .view = f.scheduler->view().id,
                                 .sender = {f.NodeFor(20), Incarnation(20), 0},
                                 .receiver = f.self,
                                 .message = Failure{"a loss that is not a number"}});
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  for (const uint64_t worker : {20, 21}) f.From(worker, Failure{"a loss that is not a number"});
  CHECK(f.scheduler->phase() == Scheduler::Phase::kStopping);
}

TEST_CASE("a process has the rank that it wants, and the lowest free one where that is taken") {
  Fixture f(MakePlan(3, 1));
  const auto rank_of = [&](uint64_t who, uint32_t wanted) {
    f.From(who,
           Register{
               .host = "h", .process_id = static_cast<uint32_t>(100 + who), .wanted_rank = wanted});
    return f.recorder.LastTo<Welcome>(Incarnation(who))->rank;
  };
  CHECK(rank_of(20, 2) == 2);
  CHECK(rank_of(21, 2) == 0);
  CHECK(rank_of(22, kAnyRank) == 1);
  CHECK(rank_of(23, UINT32_MAX - 1) == 3);
}

TEST_CASE("a notice of an exit leads to a view in the same turn") {
  Fixture f;
  f.StartAll();
  const ViewId before = f.scheduler->view().id;
  f.Exit(21, Role::kWorker);
  CHECK(f.scheduler->view().id > before);
  CHECK(f.recorder.LastTo<ViewDelta>(Incarnation(20))->change->id == f.scheduler->view().id);
  CHECK(f.journal.state->view.id == f.scheduler->view().id);
  CHECK(f.recorder.LastTo<FaultNoteAck>(Incarnation(900)) != nullptr);
  CHECK(f.recorder.faults.back().detected_by == "exit");
}

TEST_CASE("a broken connection is a death unless a word follows") {
  Fixture f;
  f.StartAll();
  f.scheduler->OnDisconnect(f.now, Incarnation(21));
  f.Wait(milliseconds(300));
  f.Wait(milliseconds(500), {});
  CHECK(f.CountShares(21) > 0);
  f.scheduler->OnDisconnect(f.now, Incarnation(21));
  f.Wait(milliseconds(450), {21});
  CHECK(f.CountShares(21) == 0);
  CHECK(f.recorder.faults.back().detected_by == "socket");
}

TEST_CASE("after the scheduler paused it expires no lease") {
  Fixture f;
  f.StartAll();
  f.now += std::chrono::seconds(10);  // stopped and continued; heartbeats still in the queue
  f.scheduler->Tick(f.now);
  CHECK_FALSE(f.recorder.HasEvent("dead"));
}

TEST_CASE("a process whose lease expired is refused, and welcome as a new incarnation") {
  Fixture f;
  f.StartAll();
  f.Wait(milliseconds(1500), {21});
  f.From(21, Heartbeat{});
  REQUIRE(f.recorder.LastTo<Refused>(Incarnation(21)) != nullptr);
  CHECK(f.recorder.LastTo<Refused>(Incarnation(21))->kind == RefusalKind::kGivenUp);
  f.From(21, Register{.role = Role::kWorker, .host = "h", .process_id = 121});
  CHECK(f.recorder.LastTo<Refused>(Incarnation(21)) != nullptr);
  CHECK(f.NodeFor(21) == kUnknownNode);
  f.Add(22, Role::kWorker);
  CHECK(f.recorder.LastTo<Welcome>(Incarnation(22))->rank == 1);
  CHECK(f.CountShares(22) == 4);
}

TEST_CASE("a member whose term, view or generation cannot be is refused, and the run goes on") {
  Fixture f;
  f.StartAll();
  const ViewId id = f.scheduler->view().id;
  const uint32_t generation = f.scheduler->view().generation;
  const auto heartbeat = [&](ViewId view, uint32_t of) {
    f.scheduler->OnMessage(f.now, {.job = JobId(9),
                                   .generation = of,
                                   .view = view,
                                   .sender = {f.NodeFor(21), Incarnation(21), 0},
                                   .receiver = f.self,
                                   .message = Heartbeat{}});
  };
  SUBCASE("a term") { heartbeat({uint64_t{1} << 63, 1}, generation); }
  SUBCASE("a term beside which the next one is 0") { heartbeat({UINT64_MAX - 1, 1}, generation); }
  SUBCASE("a view") { heartbeat({id.term, uint64_t{1} << 40}, generation); }
  SUBCASE("a generation") { heartbeat(id, UINT32_MAX); }
  f.scheduler->Tick(f.now);
  REQUIRE(f.recorder.LastTo<Refused>(Incarnation(21)) != nullptr);
  CHECK(f.recorder.LastTo<Refused>(Incarnation(21))->kind == RefusalKind::kGivenUp);
  CHECK_FALSE(f.scheduler->is_fenced());
  CHECK(f.scheduler->view().generation == generation);
  CHECK(f.scheduler->view().id.term == id.term);
  CHECK(f.CountShares(20) == 8);
  CHECK(f.journal.state->term == id.term);
}

TEST_CASE("a message that its sender may not send renews no lease (P44)") {
  Fixture f;
  f.StartAll();
  for (int i = 0; i < 40; ++i) {
    f.Wait(milliseconds(50), {21});
    f.From(21, Progress{});  // a server's
  }
  CHECK(f.NodeFor(21) == kUnknownNode);
  CHECK(f.CountShares(20) == 8);
}

TEST_CASE("processes of containers with one host name and process id are two") {
  Fixture f;
  f.StartAll();
  const Register first{.role = Role::kWorker, .host = "box", .process_id = 1, .process_key = 7};
  Register second = first;
  second.process_key = 8;
  f.From(31, first);
  f.From(32, second);
  CHECK_FALSE(f.recorder.HasEvent("dead"));
  f.From(900, FaultNote{.number = 1,
                        .action = "exit",
                        .role = Role::kWorker,
                        .host = "box",
                        .process_id = 1,
                        .exited_us = 1,
                        .text = "signal 9 (SIGKILL)",
                        .process_key = 8});
  const auto is_member = [&](uint64_t who) {
    const auto& all = f.scheduler->membership().members();
    return all.Find(Incarnation(who)) != nullptr;
  };
  CHECK(is_member(31));
  CHECK_FALSE(is_member(32));
  const auto death = std::ranges::find(f.recorder.events, "dead", &RunEvent::name);
  REQUIRE(death != f.recorder.events.end());
  CHECK(death->text.find("is gone (signal 9 (SIGKILL), noticed by exit)") != std::string::npos);
}

TEST_CASE("a process that registers again ends its old incarnation") {
  Fixture f;
  f.StartAll();
  f.From(31, Register{.role = Role::kWorker, .host = "h", .process_id = 121});
  CHECK(f.NodeFor(21) == kUnknownNode);
  CHECK(f.CountShares(20) == 8);
  CHECK(f.recorder.faults.back().detected_by == "socket");
}

TEST_CASE("a joiner starts a few steps ahead, and the old owner goes on until then") {
  Fixture f;
  f.StartAll();
  f.Commit(100);
  f.Add(22, Role::kWorker);
  CHECK(f.CountShares(22) >= 2);
  for (const MicroBatchOwner& owner : f.scheduler->view().owners) {
    if (owner.worker != f.NodeFor(22)) continue;
    CHECK(owner.first_step > Step(100));
    CHECK(owner.previous != kUnknownNode);
    CHECK(owner.previous != owner.worker);
  }
}

TEST_CASE("a first step lapses when the worker that computes until then dies") {
  Fixture f;
  f.StartAll();
  f.Commit(100);
  f.Add(22, Role::kWorker);
  f.Exit(20, Role::kWorker);
  f.Exit(21, Role::kWorker);
  CHECK(f.CountShares(22) == 8);
  for (const MicroBatchOwner& owner : f.scheduler->view().owners) {
    CHECK(owner.first_step == Step(0));
    CHECK(owner.previous == kUnknownNode);
  }
}

TEST_CASE("without any worker the job waits, reports it, and goes on when one joins") {
  Fixture f;
  f.StartAll();
  f.Exit(20, Role::kWorker);
  f.Exit(21, Role::kWorker);
  CHECK(f.WaitingText() == "no worker");
  CHECK(f.recorder.HasEvent("waiting"));
  f.Add(22, Role::kWorker);
  CHECK(f.WaitingText().empty());
  CHECK(f.CountShares(22) == 8);
}

TEST_CASE("a server's death promotes its backups, and another server gets new replicas") {
  Fixture f(MakePlan(1, 3));
  f.StartAll();
  f.Exit(10, Role::kServer);
  CHECK_FALSE(f.IsNamed(10));
  f.Sync();
  for (const ShardPlacement& placement : f.scheduler->view().shards) {
    CHECK(placement.in_sync_backups.size() == 1);
    CHECK(placement.syncing_backups.empty());
  }
  CHECK(f.scheduler->view().generation == 0);
}

TEST_CASE("a report of a pair that is no more changes nothing") {
  Fixture f(MakePlan(1, 3));
  f.StartAll();
  f.Exit(10, Role::kServer);
  const auto& shards = f.scheduler->view().shards;
  for (uint32_t s = 0; s < shards.size(); ++s) {
    if (shards[s].syncing_backups.empty()) continue;
    const SyncingBackup pair = shards[s].syncing_backups[0];
    const uint64_t primary = shards[s].primary.incarnation.value();
    f.From(primary, Synced{{{ShardId(s), pair.peer, ViewId{1, 0}}}});
    f.From(20, Synced{{{ShardId(s), pair.peer, pair.since}}});
    f.Wait(milliseconds(20));
    REQUIRE(f.scheduler->view().shards[s].in_sync_backups.empty());
    f.From(primary, Synced{{{ShardId(s), pair.peer, pair.since}}});
    f.Wait(milliseconds(20));
    REQUIRE(f.scheduler->view().shards[s].in_sync_backups.size() == 1);
    return;
  }
  FAIL("nothing is syncing");
}

TEST_CASE("a lost shard is an announced rollback to the last snapshot, on the servers there are") {
  Fixture f(MakePlan(1, 2, 1));
  f.StartAll();
  f.Commit(30);
  f.Exit(11, Role::kServer);
  CHECK(f.WaitingText() == "restoring the last snapshot");
  SUBCASE("another server comes soon") {
    f.Add(12, Role::kServer);
    CHECK(f.IsNamed(12));
  }
  SUBCASE("none comes") { f.Wait(milliseconds(1100)); }
  CHECK(f.recorder.HasEvent("rollback"));
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.scheduler->view().restore == SnapshotRef{});
  CHECK(f.scheduler->committed() == Version(0));
  CHECK_FALSE(f.IsNamed(11));
}

TEST_CASE("without any server the job waits for one, and rolls back on it") {
  Fixture f(MakePlan(1, 1));
  f.StartAll();
  f.Exit(10, Role::kServer);
  f.Wait(milliseconds(2000));
  CHECK(f.WaitingText() == "no server");
  CHECK(f.scheduler->view().generation == 0);
  f.Add(12, Role::kServer);
  CHECK(f.scheduler->view().generation == 1);
}

TEST_CASE("replicas that differ are named, and the run begins again") {
  Fixture f;
  f.StartAll();
  const ShardPlacement placement = f.scheduler->view().shards[0];
  f.From(placement.primary.incarnation.value(),
         Divergence{ShardId(0), Version(3), placement.in_sync_backups.at(0), 1, 2});
  CHECK(f.recorder.HasEvent("divergence"));
  CHECK(f.scheduler->view().generation == 1);
}

TEST_CASE("a drained worker hands over first and is then told to stop") {
  Fixture f;
  f.StartAll();
  f.Commit(100);
  f.From(901, Command{CommandKind::kDrain, "worker 1"});
  CHECK(f.recorder.LastTo<CommandReply>(Incarnation(901))->outcome == CommandOutcome::kAccepted);
  CHECK(f.CountShares(20) == 8);
  CHECK(f.recorder.LastTo<Stop>(Incarnation(21)) == nullptr);
  f.Commit(200);
  REQUIRE(f.recorder.LastTo<Stop>(Incarnation(21)) != nullptr);
  CHECK(f.recorder.LastTo<Stop>(Incarnation(21))->reason == StopReason::kDrained);
  CHECK(f.NodeFor(21) == kUnknownNode);
  f.From(21, Bye{});
  f.From(901, Command{CommandKind::kDrain, "worker 1"});
  CHECK(f.recorder.LastTo<CommandReply>(Incarnation(901))->outcome == CommandOutcome::kDone);
  CHECK(f.recorder.faults.empty());
}

TEST_CASE("a server that asks to leave goes when no shard names it") {
  Fixture f(MakePlan(1, 3));
  f.StartAll();
  f.From(12, Leave{});
  f.Sync();
  CHECK_FALSE(f.IsNamed(12));
  REQUIRE(f.recorder.LastTo<Stop>(Incarnation(12)) != nullptr);
  for (const ShardPlacement& placement : f.scheduler->view().shards)
    CHECK(placement.in_sync_backups.size() == 1);
}

TEST_CASE("the last server is not drained, nor is an unknown name") {
  Fixture f(MakePlan(1, 1));
  f.StartAll();
  f.From(901, Command{CommandKind::kDrain, "server-0"});
  CHECK(f.recorder.LastTo<CommandReply>(Incarnation(901))->outcome == CommandOutcome::kRefused);
  f.From(902, Command{CommandKind::kDrain, "worker 7"});
  CHECK(f.recorder.LastTo<CommandReply>(Incarnation(902))->outcome == CommandOutcome::kRefused);
}

TEST_CASE("a joining server gets its share, and a fault it makes no fault of") {
  Fixture f(MakePlan(1, 2));
  f.StartAll();
  f.Add(12, Role::kServer);
  f.Sync();
  CHECK(f.IsNamed(12));
  CHECK(f.recorder.faults.empty());
}

// Commits `count` steps, each after `time`.
void MakeSteps(Fixture& f, uint64_t count, Micros time) {
  for (uint64_t i = 0; i < count; ++i) {
    f.Wait(time);
    f.Commit(f.scheduler->committed().value() + 1);
  }
}

TEST_CASE("micro-batches follow measured speed when it pays") {
  Fixture f;
  f.StartAll();
  for (int i = 0; i < 20; ++i) {
    f.From(20, Heartbeat{.micro_batch_us = 1000});
    f.From(21, Heartbeat{.micro_batch_us = 3000});
  }
  MakeSteps(f, 220, milliseconds(50));  // 12 ms of it computing, and half of them saved
  CHECK(f.CountShares(20) == 6);
  CHECK(f.CountShares(21) == 2);
}

TEST_CASE("speeds change nothing where computing is a small part of a step") {
  Fixture f;
  f.StartAll();
  for (int i = 0; i < 20; ++i) {
    f.From(20, Heartbeat{.micro_batch_us = 1000});
    f.From(21, Heartbeat{.micro_batch_us = 3000});
  }
  MakeSteps(f, 220, milliseconds(100));
  MakeSteps(f, 4, std::chrono::seconds(8));
  f.Wait(std::chrono::seconds(30));
  CHECK(f.CountShares(20) == 4);
  CHECK(f.CountShares(21) == 4);
}

TEST_CASE("a worker without a share is tried again, and gets one if it is as fast as the others") {
  Fixture f;
  f.StartAll();
  const auto beat = [&](Micros time, uint64_t us) {
    for (const Micros until = f.now + time; f.now < until;) {
      f.From(20, Heartbeat{.micro_batch_us = 5000});
      f.From(21, Heartbeat{.micro_batch_us = us});
      MakeSteps(f, 2, milliseconds(100));
    }
  };
  beat(std::chrono::seconds(11), 100'000);
  REQUIRE(f.CountShares(21) == 0);
  const Micros benched_at = f.now;
  while (f.CountShares(21) == 0 && f.now < benched_at + std::chrono::minutes(1))
    beat(milliseconds(250), 100'000);
  CHECK(f.CountShares(21) == 1);
  SUBCASE("it is fast now") {
    beat(std::chrono::seconds(11), 5000);
    CHECK(f.CountShares(21) == 4);
  }
  SUBCASE("it is still slow") {
    beat(std::chrono::seconds(6), 100'000);
    CHECK(f.CountShares(21) == 0);
  }
}

TEST_CASE("a worker without a share does not change the others' shares with every view") {
  JobPlan plan = MakePlan(3, 2);
  plan.job.micro_batches = 2;
  Fixture f(std::move(plan));
  f.StartAll();
  for (int i = 0; i < 20; ++i) {
    f.From(20, Heartbeat{.micro_batch_us = 1000});
    f.From(21, Heartbeat{.micro_batch_us = 5000});
    f.From(22, Heartbeat{.micro_batch_us = 1500});
  }
  MakeSteps(f, 440, milliseconds(25));
  REQUIRE(f.CountShares(21) == 0);
  const auto before = f.scheduler->view().owners;
  for (int i = 0; i < 40; ++i) f.From(21, Heartbeat{.micro_batch_us = 1490});
  f.Add(12, Role::kServer);
  for (size_t m = 0; m < before.size(); ++m)
    CHECK(f.scheduler->view().owners[m].worker == before[m].worker);
}

TEST_CASE("a fault is over when every primary is in the view and two steps are made") {
  Fixture f;
  f.StartAll();
  f.Commit(10);
  f.From(900, FaultNote{.number = 1,
                        .action = "kill",
                        .role = Role::kWorker,
                        .host = "h",
                        .process_id = 121,
                        .injected_us = 1'000'000});
  f.Exit(21, Role::kWorker);
  f.Commit(11);
  f.Commit(12);
  CHECK(f.recorder.faults.back().recovered_ms < 0);
  f.Commit(13);
  const FaultRecord fault = f.recorder.faults.back();
  CHECK(fault.action == "kill");
  CHECK(fault.injected_ms == 1000);
  CHECK(fault.detected_ms >= fault.injected_ms);
  CHECK(fault.recovered_ms >= fault.detected_ms);
  CHECK(fault.step == Step(10));
  for (const FaultRecord& record : f.recorder.faults) CHECK(record.id == fault.id);
}

}  // namespace
}  // namespace pando
