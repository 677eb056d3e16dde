#include "tests/server/lane_fixture.h"

#include "common/hash.h"

namespace pando {
namespace {

using std::chrono::milliseconds;

void StartStoring(LaneFixture& f, std::vector<uint32_t> backups = {}) {
  f.Place(0, 1, backups);
  f.Place(1, 1, backups);
  f.Announce();
  f.GiveScalars();
  f.Deliver();
}

void Train(LaneFixture& f, uint32_t server, uint64_t first, uint64_t last) {
  for (uint64_t step = first; step < last; ++step) {
    f.PushStep(server, step);
    f.Deliver();
  }
}

RecordStored MakeOutcome(const StoreRequest& request, Status status = {}) {
  return {request.snapshot, request.shard, request.hash, "file", std::move(status)};
}

TEST_CASE("the primary, and no other replica, stores the due versions whole") {
  LaneFixture f(2, SnapshotJob());
  StartStoring(f, {2});
  Train(f, 1, 0, 3);
  REQUIRE(f.snapshots[1].stores.size() == 1);
  CHECK(f.snapshots[2].stores.empty());
  const StoreRequest& store = f.snapshots[1].stores[0];
  CHECK(store.snapshot == SnapshotRef{0, Version(2)});
  CHECK(store.shard == ShardId(0));
  CHECK(store.hash ==
        RecordHash(Version(2), store.parameters->span(), store.state->span()));  // not overwritten
}

TEST_CASE("a version that is not committed is not stored (P9)") {
  LaneFixture f(2, SnapshotJob());
  StartStoring(f, {2});
  Train(f, 1, 0, 1);
  f.PushStep(1, 1);
  f.Deliver([](const Envelope& e) { return std::holds_alternative<RootAck>(e.message); });
  CHECK(f.shard(1).newest() == Version(2));
  CHECK(f.snapshots[1].stores.empty());
  f.Wait(milliseconds(300));
  CHECK(f.snapshots[1].stores.size() == 1);
}

TEST_CASE("what is stored is reported until the scheduler knows it") {
  LaneFixture f(1, SnapshotJob());
  StartStoring(f);
  Train(f, 1, 0, 2);
  f.lane(1).OnSnapshotEvent(f.now, MakeOutcome(f.snapshots[1].stores[0]));
  f.Wait(milliseconds(500));
  const auto reports = f.Heard<SnapshotStored>(LaneFixture::kScheduler);
  REQUIRE(reports.size() >= 2);
  CHECK(reports[0].items[0].version == Version(2));
  CHECK(reports[0].items[0].file == "file");
  CHECK(reports[0].items[0].failure.empty());
  CHECK(reports[0].items[0].hash == f.snapshots[1].stores[0].hash);
  f.SendFrom(LaneFixture::kScheduler, 1, SnapshotAck{{{ShardId(0), Version(2)}}});
  f.Deliver();
  f.heard.clear();
  f.Wait(milliseconds(500));
  CHECK(f.Heard<SnapshotStored>(LaneFixture::kScheduler).empty());
}

TEST_CASE("a failure to store is reported and training goes on") {
  LaneFixture f(1, SnapshotJob());
  StartStoring(f);
  Train(f, 1, 0, 2);
  f.lane(1).OnSnapshotEvent(f.now,
                            MakeOutcome(f.snapshots[1].stores[0], Unavailable("the disk is full")));
  f.Wait(milliseconds(50));
  const auto reports = f.Heard<SnapshotStored>(LaneFixture::kScheduler);
  REQUIRE_FALSE(reports.empty());
  CHECK(reports[0].items[0].failure == "the disk is full");
  Train(f, 1, 2, 4);
  CHECK(f.Shown() == Version(4));
}

TEST_CASE("a slow disk costs snapshots, not memory; the last version is stored all the same") {
  LaneFixture f(1, SnapshotJob());
  StartStoring(f);
  Train(f, 1, 0, 20);
  REQUIRE(f.snapshots[1].stores.size() == 3);  // 2, 4 and the final 20
  CHECK(f.snapshots[1].stores[1].snapshot.version == Version(4));
  CHECK(f.snapshots[1].stores[2].snapshot.version == Version(20));
  const auto reports = f.Heard<SnapshotStored>(LaneFixture::kScheduler);
  REQUIRE_FALSE(reports.empty());
  CHECK_FALSE(reports[0].items[0].failure.empty());
}

TEST_CASE("a version asked for is stored by the primary at the time of its commit") {
  LaneFixture f(2);
  StartStoring(f, {2});
  for (uint32_t server : {1u, 2u})
    f.SendFrom(LaneFixture::kScheduler, server, SnapshotAt{Version(3)});
  f.Deliver();
  CHECK(f.Heard<SnapshotAtAck>(LaneFixture::kScheduler).size() == 2);
  Train(f, 1, 0, 2);
  f.Kill(1);
  f.Place(0, 2, {});
  f.Place(1, 2, {});
  f.Announce();
  f.Deliver();
  Train(f, 2, 2, 4);
  REQUIRE(f.snapshots[2].stores.size() == 1);
  CHECK(f.snapshots[2].stores[0].snapshot.version == Version(3));
}

TEST_CASE("a version that is past when it is asked for is said to have failed, once") {
  LaneFixture f(1);
  StartStoring(f);
  Train(f, 1, 0, 4);
  f.SendFrom(LaneFixture::kScheduler, 1, SnapshotAt{Version(3)});
  f.Wait(milliseconds(50));
  const auto reports = f.Heard<SnapshotStored>(LaneFixture::kScheduler);
  REQUIRE_FALSE(reports.empty());
  CHECK_FALSE(reports[0].items[0].failure.empty());
  CHECK(f.snapshots[1].stores.empty());
}

TEST_CASE("a late duplicate of a request for a snapshot does not spoil it") {
  LaneFixture f(1);
  StartStoring(f);
  f.SendFrom(LaneFixture::kScheduler, 1, SnapshotAt{Version(1)});
  Train(f, 1, 0, 3);
  f.SendFrom(LaneFixture::kScheduler, 1, SnapshotAt{Version(1)});
  f.Wait(milliseconds(300));
  CHECK(f.snapshots[1].stores.size() == 1);
  CHECK(f.Heard<SnapshotStored>(LaneFixture::kScheduler).empty());
}

TEST_CASE("where the run stands is stored, also after a later version that never comes") {
  LaneFixture f(1);
  StartStoring(f);
  Train(f, 1, 0, 3);
  f.SendFrom(LaneFixture::kScheduler, 1, SnapshotAt{Version(9)});
  f.SendFrom(LaneFixture::kScheduler, 1, SnapshotAt{Version(3)});
  f.Wait(milliseconds(50));
  REQUIRE(f.snapshots[1].stores.size() == 1);
  CHECK(f.snapshots[1].stores[0].snapshot.version == Version(3));
}

TEST_CASE("a promoted primary stores the due version that its predecessor may not have stored") {
  LaneFixture f(2, SnapshotJob());
  StartStoring(f, {2});
  Train(f, 1, 0, 2);
  f.Kill(1);
  f.Place(0, 2, {});
  f.Place(1, 2, {});
  f.Announce();
  f.Deliver();
  REQUIRE(f.snapshots[2].stores.size() == 1);
  CHECK(f.snapshots[2].stores[0].hash == f.snapshots[1].stores[0].hash);
}

// ---- restore and generations -------------------------------------------------------------------

void RollBack(LaneFixture& f, Version to) {
  ++f.view.generation;
  f.view.restore = {f.view.generation - 1, to};
  f.Announce();
  f.Deliver();
}

RecordLoaded Loaded(const LaneFixture& f, const StoreRequest& stored) {
  return {f.view.restore, stored.shard, {}, stored.parameters, stored.state};
}

TEST_CASE("a generation begins from its snapshot and makes the same versions again") {
  LaneFixture f(2, SnapshotJob());
  StartStoring(f, {2});
  Train(f, 1, 0, 5);
  const uint64_t hash = f.shard(1).records().NewestHash();
  const StoreRequest stored = f.snapshots[1].stores[0];
  RollBack(f, Version(2));
  CHECK_FALSE(f.shard(1).has_data());
  for (uint32_t server : {1u, 2u}) {
    REQUIRE(f.snapshots[server].loads.size() == 2);  // both shards
    CHECK(f.snapshots[server].loads[0].snapshot == SnapshotRef{0, Version(2)});
    CHECK(f.snapshots[server].loads[0].state_floats == f.shard(server).records().state_floats());
    f.lane(server).OnSnapshotEvent(f.now, Loaded(f, stored));
  }
  CHECK(f.shard(1).committed() == Version(2));
  Train(f, 1, 2, 5);
  CHECK(f.Shown() == Version(5));
  CHECK(f.shard(1).records().NewestHash() == hash);
  CHECK(f.shard(2).records().NewestHash() == hash);
}

TEST_CASE("pulls of a shard being restored are pending, and its lane reports no progress") {
  LaneFixture f(1, SnapshotJob());
  StartStoring(f);
  Train(f, 1, 0, 5);
  const StoreRequest stored = f.snapshots[1].stores[0];
  RollBack(f, Version(2));
  f.heard.clear();
  f.PushStep(1, 2);
  f.SendFrom(LaneFixture::kWorker, 1, Pull{{{ShardId(0), Version(2)}}});
  f.SendFrom(LaneFixture::kWorker, 1, Question{f.view.id});
  f.Wait(milliseconds(500));
  const auto replies = f.Heard<PushReply>(LaneFixture::kWorker);
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].items.size() == 1);  // the pull's: the push is not held
  CHECK(replies[0].items[0].outcome == PushOutcome::kPending);
  REQUIRE(f.Heard<Answer>(LaneFixture::kWorker).size() == 1);
  CHECK(f.Heard<Answer>(LaneFixture::kWorker)[0].items.empty());
  CHECK(f.Heard<Params>(LaneFixture::kWorker).empty());
  CHECK(f.Heard<Progress>(LaneFixture::kScheduler).empty());
  f.lane(1).OnSnapshotEvent(f.now, Loaded(f, stored));
  f.Deliver();
  CHECK(f.Shown() == Version(2));
}

TEST_CASE("a backup that restores slowly is not silent") {
  LaneFixture f(2, SnapshotJob());
  StartStoring(f, {2});
  Train(f, 1, 0, 3);
  std::vector<StoreRequest> stored = f.snapshots[1].stores;
  RollBack(f, Version(2));
  for (const StoreRequest& record : stored) {
    if (record.snapshot.version == Version(2)) f.lane(1).OnSnapshotEvent(f.now, Loaded(f, record));
  }
  f.PushStep(1, 2);
  f.Wait(std::chrono::seconds(5));
  CHECK(f.Heard<PeerSilent>(LaneFixture::kScheduler).empty());
  CHECK(f.shard(1).committed() == Version(2));
  for (const StoreRequest& record : stored) {
    if (record.snapshot.version == Version(2)) f.lane(2).OnSnapshotEvent(f.now, Loaded(f, record));
  }
  f.Wait(std::chrono::seconds(2));
  CHECK(f.shard(1).committed() == Version(3));
}

TEST_CASE("a generation may begin from the seed") {
  LaneFixture f(2);
  StartStoring(f, {2});
  const uint64_t hash = f.shard(1).records().NewestHash();
  Train(f, 1, 0, 3);
  RollBack(f, Version(0));
  CHECK(f.shard(1).committed() == Version(0));
  CHECK(f.shard(2).newest() == Version(0));
  CHECK(f.shard(1).records().NewestHash() == hash);
  CHECK(f.snapshots[1].loads.empty());
}

TEST_CASE("messages of an older generation are not heard (P21)") {
  LaneFixture f(2);
  StartStoring(f, {2});
  Train(f, 1, 0, 2);
  f.PushStep(1, 2);
  std::vector<Envelope> old;
  f.Deliver([&](const Envelope& e) {
    if (!std::holds_alternative<Root>(e.message)) return false;
    old.push_back(e);
    return true;
  });
  RollBack(f, Version(0));
  f.queue.assign(old.begin(), old.end());
  f.Deliver();
  CHECK(f.shard(2).newest() == Version(0));
}

TEST_CASE("what cannot be loaded is a failure, said until the scheduler answers") {
  LaneFixture f(1, SnapshotJob());
  StartStoring(f);
  Train(f, 1, 0, 3);
  const StoreRequest stored = f.snapshots[1].stores[0];
  RollBack(f, Version(2));
  RecordLoaded short_of = Loaded(f, stored);
  short_of.state = std::make_shared<FloatBuffer>(1);
  f.lane(1).OnSnapshotEvent(f.now, short_of);
  f.Wait(milliseconds(500));
  const auto failures = f.Heard<RestoreFailed>(LaneFixture::kScheduler);
  REQUIRE(failures.size() >= 2);
  CHECK(failures[0].snapshot == f.view.restore);
  CHECK(failures[0].is_corrupt);
  CHECK(failures[0].text.find("shard 0") != std::string::npos);
  RecordLoaded broken = Loaded(f, stored);
  broken.shard = ShardId(1);
  broken.status = Corrupt("g000.safetensors: the hash differs");
  f.lane(1).OnSnapshotEvent(f.now, broken);
  f.Wait(milliseconds(500));
  CHECK(f.Heard<RestoreFailed>(LaneFixture::kScheduler).back().text == broken.status.message());
}

TEST_CASE("an outcome of an older generation changes nothing") {
  LaneFixture f(1, SnapshotJob());
  StartStoring(f);
  Train(f, 1, 0, 3);
  const StoreRequest stored = f.snapshots[1].stores[0];
  RollBack(f, Version(2));
  const RecordLoaded late = Loaded(f, stored);
  RollBack(f, Version(0));
  f.lane(1).OnSnapshotEvent(f.now, late);
  f.lane(1).OnSnapshotEvent(f.now, MakeOutcome(stored));
  f.heard.clear();
  f.Wait(milliseconds(300));
  CHECK(f.shard(1).committed() == Version(0));
  CHECK(f.Heard<SnapshotStored>(LaneFixture::kScheduler).empty());
}

}  // namespace
}  // namespace pando
