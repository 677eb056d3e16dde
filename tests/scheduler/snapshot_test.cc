// Snapshots, as the scheduler runs them.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/scheduler/storing_fixture.h"

namespace pando {
namespace {

TEST_CASE("a snapshot is complete, in the journal and acknowledged once all shards are stored") {
  StoringFixture f;
  f.StartAll();
  CHECK(f.recorder.LastTo<Welcome>(Incarnation(20))->snapshot_dir == "/snapshots");
  f.MakeTo(10);
  const PeerId first = f.scheduler->view().shards[0].primary;
  f.From(first.incarnation.value(), SnapshotStored{{{ShardId(0), Version(10), 1, "v10", ""}}},
         first.lane);
  CHECK(f.recorder.LastTo<SnapshotAck>(first.incarnation) == nullptr);
  f.Store(10);
  REQUIRE(f.recorder.snapshots.size() == 1);
  CHECK(f.recorder.snapshots[0] == SnapshotRef{0, Version(10)});
  CHECK(f.journal.state->snapshots.size() == 1);
  f.Store(10);
  CHECK(f.recorder.LastTo<SnapshotAck>(first.incarnation) != nullptr);
}

TEST_CASE("a snapshot waits for the metric rows that a rollback to it would lose") {
  StoringFixture f;
  f.StartAll();
  f.Commit(10);
  f.Store(10);
  CHECK(f.recorder.snapshots.empty());
  f.MakeTo(10);
  CHECK(f.recorder.snapshots.size() == 1);
}

TEST_CASE("only the newest snapshots are kept") {
  StoringFixture f;
  f.StartAll();
  for (uint64_t version : {10, 20, 30}) {
    f.MakeTo(version);
    f.Store(version);
  }
  CHECK(f.recorder.dropped == std::vector{SnapshotRef{0, Version(10)}});
  CHECK(f.journal.state->snapshots.size() == 2);
}

TEST_CASE("a server that stores other bits than its backups have makes no older snapshot vanish") {
  StoringFixture f;
  f.StartAll();
  for (uint64_t version : {10, 20}) {
    f.MakeTo(version);
    f.Store(version);
  }
  for (uint64_t version = 30; version <= 60; version += 10) {
    f.MakeTo(version);
    f.Store(version, "", 10);
    f.Wait(std::chrono::seconds(3));
  }
  CHECK(f.recorder.snapshots.size() == 2);
  for (const SnapshotRef& dropped : f.recorder.dropped) CHECK(dropped.version > Version(20));
  const auto event = std::ranges::find(f.recorder.events, "snapshot-failed", &RunEvent::name);
  REQUIRE(event != f.recorder.events.end());
  CHECK(event->text.find("server 0 have different bits of shard") != std::string::npos);
}

TEST_CASE("a snapshot whose file holds another record is given up, with the name of its server") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(10);
  f.recorder.is_reading = true;
  f.Store(10);
  f.Wait(std::chrono::seconds(3));
  CHECK(f.recorder.snapshots.empty());  // while its files are read
  f.recorder.is_reading = false;
  SUBCASE("all files are sound") {
    f.Wait(milliseconds(50));
    CHECK(f.recorder.snapshots.size() == 1);
  }
  SUBCASE("one is not") {
    const auto& shards = f.scheduler->view().shards;
    const auto of_second = std::ranges::find_if(
        shards, [](const auto& shard) { return shard.primary.incarnation == Incarnation(11); });
    f.recorder.bad_shard = ShardId(static_cast<uint32_t>(of_second - shards.begin()));
    f.recorder.disk = Corrupt("its bytes have changed");
    f.Wait(milliseconds(50));
    CHECK(f.recorder.snapshots.empty());
    const auto event = std::ranges::find(f.recorder.events, "snapshot-failed", &RunEvent::name);
    REQUIRE(event != f.recorder.events.end());
    CHECK(event->text.find("its bytes have changed") != std::string::npos);
  }
}

TEST_CASE("a snapshot that no backup has confirmed is used, and makes no older one vanish") {
  StoringFixture f;
  f.StartAll();
  for (uint64_t version : {10, 20, 30}) {
    f.MakeTo(version);
    const auto& shards = f.scheduler->view().shards;
    for (uint32_t s = 0; s < shards.size(); ++s)
      f.From(shards[s].primary.incarnation.value(),
             SnapshotStored{{{ShardId(s), Version(version), 1, "v", ""}}}, shards[s].primary.lane);
    CHECK(f.recorder.snapshots.size() == version / 10 - 1);
    f.Wait(std::chrono::seconds(3));
    CHECK(f.recorder.snapshots.size() == version / 10);
  }
  CHECK(f.journal.state->snapshots.size() == 3);
  f.MakeTo(40);
  f.Store(40);
  CHECK(f.journal.state->snapshots.size() == 2);
}

TEST_CASE("what is given up stays so when the scheduler starts again, for its files are gone") {
  StoringFixture f(StoringPlan(2, 1));
  f.StartAll();
  f.MakeTo(10);
  f.Store(10, "the disk is full");
  CHECK(f.recorder.dropped.empty());
  f.Add(22, Role::kWorker);         // which the journal has to know
  f.Store(10, "the disk is full");  // it comes again until it is acknowledged
  REQUIRE(f.recorder.dropped.size() > 0);
  CHECK(f.journal.state->given_up.versions == std::vector{Version(10)});
  f.StartScheduler();
  for (uint64_t who : {10, 11, 20, 21, 22}) f.From(who, Heartbeat{});
  f.Store(10);
  CHECK(f.recorder.snapshots.empty());
  CHECK(f.recorder.LastTo<SnapshotAck>(Incarnation(10)) != nullptr);
  f.MakeTo(20);
  f.Store(20);
  CHECK(f.recorder.snapshots == std::vector{SnapshotRef{0, Version(20)}});
}

TEST_CASE("a scheduler that another has replaced drops no file") {
  StoringFixture f(StoringPlan(2, 1));
  f.StartAll();
  f.MakeTo(10);
  const PeerId first = f.scheduler->view().shards[0].primary;
  f.From(first.incarnation.value(), SnapshotStored{{{ShardId(0), Version(10), 1, "v10", ""}}},
         first.lane);
  f.journal.refuses = true;
  f.From(first.incarnation.value(),
         SnapshotStored{{{ShardId(1), Version(10), 0, "", "the disk is full"}}}, first.lane);
  f.Add(22, Role::kWorker);
  CHECK(f.recorder.dropped.empty());
  CHECK(f.scheduler->is_fenced());
}

TEST_CASE("a rollback begins from the newest snapshot, and the restarted scheduler knows it") {
  StoringFixture f(StoringPlan(1, 1));
  f.StartAll();
  f.MakeTo(25);
  f.Store(10);
  f.Store(20);
  SUBCASE("the scheduler lives") {}
  SUBCASE("the scheduler starts again") {
    f.StartScheduler();
    for (uint64_t who : {10, 11, 20}) f.From(who, Heartbeat{});
  }
  f.Exit(11, Role::kServer);
  f.Add(12, Role::kServer);
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.scheduler->view().restore == SnapshotRef{0, Version(20)});
  CHECK(f.scheduler->committed() == Version(20));
}

TEST_CASE("a snapshot that cannot be read costs the steps since the one before, not the job") {
  StoringFixture f(StoringPlan(1, 1));
  f.StartAll();
  f.MakeTo(25);
  f.Store(10);
  f.Store(20);
  f.Exit(11, Role::kServer);
  f.Add(12, Role::kServer);
  REQUIRE(f.scheduler->view().restore == SnapshotRef{0, Version(20)});
  const auto damaged = [&](uint64_t who) {
    f.From(who, RestoreFailed{{0, Version(20)}, f.LedBy(who), true, "v20: hash differs"});
  };
  damaged(12);
  damaged(10);
  CHECK(f.recorder.HasEvent("snapshot-unreadable"));
  CHECK(f.recorder.forgotten == std::vector{SnapshotRef{0, Version(20)}});
  CHECK(f.scheduler->view().generation == 2);
  CHECK(f.scheduler->view().restore == SnapshotRef{0, Version(10)});
  CHECK(f.recorder.dropped.empty());  // its files are left for people to look at
  f.From(10, RestoreFailed{{0, Version(10)}, f.LedBy(10), true, "v10: cut"});
  CHECK(f.scheduler->view().restore == SnapshotRef{});
  CHECK(f.journal.state->snapshots.empty());
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  for (const uint64_t server : {10, 12}) f.From(server, Failure{"something else"});
  CHECK(f.scheduler->stop().reason == StopReason::kFailed);
}

TEST_CASE("a server that cannot read a sound snapshot is passed over, and the snapshot kept") {
  StoringFixture f(StoringPlan(1, 1));
  f.StartAll();
  f.MakeTo(25);
  f.Store(20);
  f.Exit(11, Role::kServer);
  f.Add(12, Role::kServer);  // on a machine where the folder is not mounted, say
  const RestoreFailed failed{{0, Version(20)}, f.LedBy(12), false, "v20: no such file"};
  REQUIRE(f.IsNamed(12));
  f.From(12, failed);
  CHECK(f.recorder.HasEvent("restore-failed"));
  CHECK(f.scheduler->view().generation == 2);
  CHECK(f.scheduler->view().restore == SnapshotRef{0, Version(20)});
  CHECK(f.scheduler->view().shards[0].primary.incarnation == Incarnation(10));
  CHECK_FALSE(f.IsNamed(12));
  CHECK(f.journal.state->snapshots.size() == 1);
  f.Commit(21);
  f.Wait(std::chrono::seconds(1));  // it may get shards from others
  f.Sync();
  CHECK(f.IsNamed(12));
}

TEST_CASE("a snapshot that no server can read is tried again for a while before it is given up") {
  StoringFixture f(StoringPlan(1, 1));
  f.StartAll();
  f.MakeTo(25);
  f.Store(20);
  f.Exit(11, Role::kServer);
  f.Wait(std::chrono::seconds(2));
  const RestoreFailed failed{{0, Version(20)}, ShardId(0), false, "v20: too many open files"};
  for (uint32_t generation : {1u, 2u, 3u}) {
    CHECK(f.scheduler->view().generation == generation);
    CHECK(f.scheduler->view().restore == SnapshotRef{0, Version(20)});
    f.From(10, failed);
    f.From(10, failed);  // repeated
    f.Wait(std::chrono::seconds(2));
  }
  CHECK(f.scheduler->view().restore == SnapshotRef{});
  CHECK(f.recorder.forgotten.size() == 1);
}

TEST_CASE("a snapshot whose files are not in the run's folder is none") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(10);
  f.recorder.disk = NotFound("v10 is not there");
  f.Store(10);
  CHECK(f.recorder.snapshots.empty());
  CHECK(f.recorder.HasEvent("snapshot-failed"));
  f.recorder.disk = Status();
  f.MakeTo(20);
  f.Store(20);
  CHECK(f.recorder.snapshots == std::vector{SnapshotRef{0, Version(20)}});
}

TEST_CASE("files of a snapshot go only when the journal does not name them any more") {
  StoringFixture f;
  f.StartAll();
  for (uint64_t version : {10, 20}) {
    f.MakeTo(version);
    f.Store(version);
  }
  f.MakeTo(30);
  f.journal.refuses = true;
  f.Store(30);
  CHECK(f.scheduler->is_fenced());
  CHECK(f.recorder.dropped.empty());
}

TEST_CASE("a failure of a generation that is over is answered by the next one") {
  StoringFixture f(StoringPlan(1, 1));
  f.StartAll();
  f.Exit(11, Role::kServer);
  f.Add(12, Role::kServer);
  f.scheduler->OnMessage(f.now, {.job = Fixture::kJob,
                                 .generation = 0,
                                 .view = f.scheduler->view().id,
                                 .sender = {f.NodeFor(10), Incarnation(10), 0},
                                 .receiver = f.self,
                                 .message = RestoreFailed{{}, ShardId(0), true, "no such file"}});
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
}

TEST_CASE("a full disk costs that snapshot and is said aloud") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(10);
  f.Store(10, "no space left on device");
  CHECK(f.recorder.snapshots.empty());
  CHECK(f.recorder.HasEvent("snapshot-failed"));
  f.MakeTo(20);
  f.Store(20, "no space left on device");
  CHECK(std::ranges::count(f.recorder.events, "snapshot-failed", &RunEvent::name) == 1);
  f.MakeTo(30);
  f.Store(30);
  CHECK(f.recorder.snapshots.size() == 1);
  CHECK(f.recorder.events.back().is_notable);  // it is over
}

TEST_CASE("a snapshot that is asked for lies ahead of every shard, and is done when complete") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(5);
  f.From(901, Command{CommandKind::kSnapshot, ""});
  CHECK(f.recorder.LastTo<CommandReply>(Incarnation(901))->outcome == CommandOutcome::kAccepted);
  REQUIRE(f.recorder.LastTo<SnapshotAt>(Incarnation(10)) != nullptr);
  const Version version = f.recorder.LastTo<SnapshotAt>(Incarnation(10))->version;
  CHECK(version > Version(5));
  f.MakeTo(version.value());
  f.Store(version.value());
  f.From(901, Command{CommandKind::kSnapshot, ""});
  CHECK(f.recorder.LastTo<CommandReply>(Incarnation(901))->outcome == CommandOutcome::kDone);
}

TEST_CASE("a snapshot that was asked for before a rollback is asked for again after it") {
  StoringFixture f(StoringPlan(1, 1));
  f.StartAll();
  f.MakeTo(25);
  f.From(901, Command{CommandKind::kSnapshot, ""});
  const Version before = f.recorder.LastTo<SnapshotAt>(Incarnation(10))->version;
  f.From(10, SnapshotAtAck{before});
  f.Exit(11, Role::kServer);
  f.Add(12, Role::kServer);
  REQUIRE(f.scheduler->view().generation == 1);
  f.recorder.sent.clear();
  f.Wait(milliseconds(300));
  REQUIRE(f.recorder.LastTo<SnapshotAt>(Incarnation(10)) != nullptr);
  const Version version = f.recorder.LastTo<SnapshotAt>(Incarnation(10))->version;
  CHECK(version < before);
  f.MakeTo(version.value());
  f.MakeTo(25);
  f.Store(version.value());
  f.From(901, Command{CommandKind::kSnapshot, ""});
  CHECK(f.recorder.LastTo<CommandReply>(Incarnation(901))->outcome == CommandOutcome::kDone);
}

TEST_CASE("a stop by command ends the run as Ctrl-C does") {
  Fixture f;
  f.StartAll();
  f.From(901, Command{CommandKind::kStop, ""});
  CHECK(f.recorder.LastTo<CommandReply>(Incarnation(901))->outcome == CommandOutcome::kDone);
  CHECK(f.scheduler->stop().reason == StopReason::kInterrupted);
}

TEST_CASE("without a worker the version that is there is stored, as no later one comes") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(13);
  const PeerId lane = f.scheduler->view().shards[0].primary;
  const auto asked = [&] { return f.recorder.LastTo<SnapshotAt>(lane.incarnation)->version; };
  SUBCASE("the last one is gone") {
    for (uint64_t who : {20, 21}) f.Exit(who, Role::kWorker);
    f.From(901, Command{CommandKind::kSnapshot, ""});
    f.scheduler->Tick(f.now);
  }
  SUBCASE("the last one goes before the version is made") {
    f.From(901, Command{CommandKind::kSnapshot, ""});
    f.scheduler->Tick(f.now);
    CHECK(asked() > Version(13));
    for (const ShardPlacement& shard : std::vector(f.scheduler->view().shards))
      f.From(shard.primary.incarnation.value(), SnapshotAtAck{asked()}, shard.primary.lane);
    f.Wait(std::chrono::seconds(6));
    f.scheduler->Tick(f.now);
  }
  CHECK(asked() == Version(13));
  f.Store(13);
  CHECK(f.recorder.snapshots.back() == SnapshotRef{0, Version(13)});
}

TEST_CASE("commands to stop do not end the run before its snapshot is stored") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(13);
  for (const uint64_t client : {900, 901}) {
    f.From(client, Command{.kind = CommandKind::kStop});
    const auto* reply = f.recorder.LastTo<CommandReply>(Incarnation(client));
    REQUIRE(reply != nullptr);
    CHECK(reply->outcome == CommandOutcome::kDone);
    CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  }
}

TEST_CASE("an interrupted run ends once where it stands is stored") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(13);
  f.scheduler->End(f.now, StopReason::kInterrupted, "interrupted");
  f.scheduler->Tick(f.now);
  CHECK(f.recorder.HasEvent("last-snapshot"));
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  SUBCASE("the servers store the version asked for") {
    const PeerId lane = f.scheduler->view().shards[0].primary;
    const auto* asked = f.recorder.LastTo<SnapshotAt>(lane.incarnation);
    REQUIRE(asked != nullptr);
    const uint64_t version = asked->version.value();
    CHECK(version > 13);
    f.MakeTo(version);
    f.Store(version);
    CHECK(f.recorder.snapshots.back() == SnapshotRef{0, Version(version)});
  }
  SUBCASE("a second signal") { f.scheduler->End(f.now, StopReason::kInterrupted, "interrupted"); }
  SUBCASE("the servers do not answer") {
    f.now += LastSnapshot::kPatience;
    f.scheduler->Tick(f.now);
  }
  CHECK(f.scheduler->phase() == Scheduler::Phase::kStopping);
  CHECK(f.scheduler->stop().reason == StopReason::kInterrupted);
}

TEST_CASE("a failed run whose shards are further than is known stores what they have") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(13);
  for (int i = 0; i < 5; ++i) {
    for (const uint64_t worker : {20, 21}) f.From(worker, Failure{"loss is not a number"});
  }
  CHECK(std::ranges::count(f.recorder.events, "failed", &RunEvent::name) == 2);
  const PeerId lane = f.scheduler->view().shards[0].primary;
  f.From(lane.incarnation.value(),
         SnapshotStored{{{ShardId(0), Version(13), {}, {}, "the shard was past this version"}}},
         lane.lane);
  f.scheduler->Tick(f.now);
  SUBCASE("and the news comes") {
    f.MakeTo(14);
    f.scheduler->Tick(f.now);
    CHECK(f.recorder.LastTo<SnapshotAt>(lane.incarnation)->version == Version(14));
    f.Store(14);
    CHECK(f.recorder.snapshots.back() == SnapshotRef{0, Version(14)});
  }
  SUBCASE("and no news comes") { f.Wait(milliseconds(600)); }
  f.scheduler->Tick(f.now);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kStopping);
}

TEST_CASE("a run that ends while an earlier version is being stored stores its last one too") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(5);
  const PeerId lane = f.scheduler->view().shards[0].primary;
  const auto asked = [&] { return f.recorder.LastTo<SnapshotAt>(lane.incarnation)->version; };
  f.From(901, Command{CommandKind::kSnapshot, ""});
  f.scheduler->Tick(f.now);
  const Version earlier = asked();
  f.MakeTo(earlier.value() + 2);
  SUBCASE("by command") { f.From(900, Command{.kind = CommandKind::kStop}); }
  SUBCASE("by a failure") {
    for (const uint64_t worker : {20, 21}) f.From(worker, Failure{"loss is not a number"});
  }
  f.Store(earlier.value());
  f.scheduler->Tick(f.now);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  const Version last = asked();
  CHECK(last >= Version(earlier.value() + 2));
  f.MakeTo(last.value());
  f.Store(last.value());
  f.scheduler->Tick(f.now);
  CHECK(f.recorder.snapshots.back() == SnapshotRef{0, last});
  CHECK(f.scheduler->phase() == Scheduler::Phase::kStopping);
}

TEST_CASE("a failed run stores the version that it stands at, as no later one may come") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(13);
  for (const uint64_t worker : {20, 21}) f.From(worker, Failure{"loss is not a number"});
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  f.Store(13);
  CHECK(f.recorder.snapshots == std::vector{SnapshotRef{0, Version(13)}});
  CHECK(f.scheduler->stop().text.find("loss is not a number") != std::string::npos);
}

TEST_CASE("a run without news since its last snapshot ends at once") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(10);
  f.Store(10);
  f.scheduler->End(f.now, StopReason::kInterrupted, "interrupted");
  CHECK(f.scheduler->phase() == Scheduler::Phase::kStopping);
}

}  // namespace
}  // namespace pando
