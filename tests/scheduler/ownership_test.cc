// P46: what the scheduler believes of a member that has the members' key, and lies about what is
// not its own.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/scheduler/storing_fixture.h"

namespace pando {
namespace {

// One replica: server 10 leads some shards, server 11 the others. Process 30 is welcomed and never
// ready, so no view has it.
struct LiarFixture : StoringFixture {
  explicit LiarFixture(JobPlan plan_in = StoringPlan(2, 1)) : StoringFixture(std::move(plan_in)) {
    StartAll();
    Join(30, Role::kServer);
    Join(31, Role::kWorker);
  }
  ShardId OthersShard() const { return LedBy(11); }
  Params ZerosFor(uint32_t s) const {
    const auto zeros = std::make_shared<const FloatBuffer>(plan.shards.range(ShardId(s)).size());
    return {{{ShardId(s), plan.steps.final_version(), Blob(std::as_bytes(zeros->span()), zeros)}}};
  }
  bool IsAcked(uint64_t who, Version version) const {
    return std::ranges::any_of(recorder.sent, [&](const Envelope& envelope) {
      const auto* ack = std::get_if<SnapshotAck>(&envelope.message);
      return ack != nullptr && envelope.receiver.incarnation == Incarnation(who) &&
             std::ranges::count(ack->items, version, &SnapshotAckItem::version) != 0;
    });
  }
};

TEST_CASE("final weights come from each shard's primary alone") {
  LiarFixture f;
  f.MakeTo(1000);
  const auto* slice = f.recorder.LastTo<Evaluate>(Incarnation(20));
  REQUIRE(slice != nullptr);
  f.From(20, EvaluationResult{
                 .version = slice->version, .sample_count = 100, .confusion = {{0, 0, 100}}});
  f.Store(1000);
  REQUIRE(f.scheduler->phase() == Scheduler::Phase::kCollecting);
  for (const uint64_t liar : {20, 30, 31, 10}) {
    for (uint32_t s = 0; s < f.plan.shards.shard_count(); ++s) {
      if (liar != 10 || ShardId(s) == f.OthersShard()) f.From(liar, f.ZerosFor(s));
    }
  }
  CHECK_FALSE(f.recorder.has_weights);
  for (uint32_t s = 0; s < f.plan.shards.shard_count(); ++s) {
    const PeerId primary = f.scheduler->view().shards[s].primary;
    f.From(primary.incarnation.value(), f.ZerosFor(s), primary.lane);
  }
  CHECK(f.recorder.has_weights);
}

TEST_CASE("a shard's snapshot is reported by a lane that had the shard in this generation") {
  LiarFixture f;
  f.MakeTo(10);
  const ShardId shard = f.OthersShard();
  const SnapshotStored lie{{{shard, Version(10), 7, "forged", ""}}};
  const SnapshotStored failure{{{shard, Version(10), 0, "", "forged"}}};
  for (const uint64_t liar : {10, 30}) {
    f.From(liar, lie);
    f.From(liar, failure);
  }
  CHECK_FALSE(f.recorder.HasEvent("snapshot-failed"));
  f.Store(10);
  REQUIRE(f.recorder.snapshots.size() == 1);
  for (const SnapshotManifest& manifest : f.journal.state->snapshots)
    CHECK(manifest.shards[shard.value()].file == "v10");
}

TEST_CASE("a primary of the past reports what it stored, to a later scheduler too") {
  LiarFixture f(StoringPlan(2, 2));
  f.MakeTo(10);
  const PeerId before = f.scheduler->view().shards[0].primary;
  f.From(900, Command{CommandKind::kDrain,
                      before.incarnation == Incarnation(10) ? "server 0" : "server 1"});
  f.BeReady(30);
  f.Sync();
  REQUIRE(f.scheduler->view().shards[0].primary != before);
  if (f.scheduler->membership().members().Find(before.incarnation) == nullptr) return;
  SUBCASE("the same scheduler") {}
  SUBCASE("a later life") {
    f.StartScheduler();
    for (const uint64_t who : {10, 11, 20, 21, 30}) f.From(who, Heartbeat{});
  }
  CHECK(f.journal.state->holders.Has(ShardId(0), before));
}

TEST_CASE("a version that no shard can have yet is neither acknowledged nor given up") {
  LiarFixture f;
  f.MakeTo(5);
  const auto report = [&](uint64_t version, const std::string& failure) {
    f.From(10, SnapshotStored{
                   {{f.LedBy(10), Version(version), 1, failure.empty() ? "f" : "", failure}}});
  };
  for (uint64_t i = 0; i < 70; ++i) report((uint64_t{1} << 50) + i, "full");
  for (const uint64_t version : {10, 1000, 2000}) report(version, "");
  CHECK(f.recorder.LastTo<SnapshotAck>(Incarnation(10)) == nullptr);
  CHECK_FALSE(f.recorder.HasEvent("snapshot-failed"));
  f.MakeTo(10);
  f.Store(10);
  CHECK(f.recorder.snapshots.size() == 1);
}

TEST_CASE("a server gives up only versions that are due, or that it was asked for") {
  LiarFixture f;
  f.MakeTo(109);
  const auto& shards = f.scheduler->view().shards;
  for (uint64_t version = 1; version < 100; ++version) {
    if (version % 10 == 0) continue;
    for (uint32_t s = 0; s < shards.size(); ++s) {
      if (shards[s].primary.incarnation != Incarnation(10)) continue;
      f.From(10, SnapshotStored{{{ShardId(s), Version(version), 0, "", "full"}}});
    }
  }
  CHECK_FALSE(f.recorder.HasEvent("snapshot-failed"));
  CHECK(f.IsAcked(10, Version(99)));  // it does not come again
  f.Store(20);                        // below the versions that failed
  CHECK(f.recorder.snapshots == std::vector{SnapshotRef{0, Version(20)}});
}

TEST_CASE("only a server that restores the snapshot can call it unreadable, before a commit") {
  LiarFixture f;
  f.MakeTo(10);
  f.Store(10);
  f.Exit(11, Role::kServer);
  f.Add(12, Role::kServer);
  f.Wait(std::chrono::seconds(2));
  const SnapshotRef restore = f.scheduler->view().restore;
  REQUIRE(restore.version == Version(10));
  f.From(30, RestoreFailed{restore, ShardId(0), true, "forged"});
  f.From(12, RestoreFailed{restore, f.LedBy(10), true, "forged"});
  CHECK_FALSE(f.recorder.HasEvent("snapshot-unreadable"));
  SUBCASE("before a commit") {
    f.From(12, RestoreFailed{restore, f.LedBy(12), true, "a bad disk"});
    CHECK(f.recorder.HasEvent("snapshot-unreadable"));
  }
  SUBCASE("after one") {
    f.Commit(11);
    f.From(12, RestoreFailed{restore, f.LedBy(12), true, "forged"});
    CHECK_FALSE(f.recorder.HasEvent("snapshot-unreadable"));
    CHECK(f.scheduler->view().restore == restore);
  }
}

TEST_CASE("metric rows come from the metric shard's primary, of versions that it has committed") {
  LiarFixture f;
  f.MakeTo(5);
  REQUIRE(f.recorder.rows.size() == 5);
  const PeerId metric = f.scheduler->view().shards.back().primary;
  const uint64_t own = metric.incarnation.value();
  const Progress far{Version(5), {{.step = Step(uint64_t{1} << 50)}}};
  const Progress next{Version(5), {{.step = Step(5)}}};
  for (const uint64_t liar : {own == 10 ? 11 : 10, 30}) {
    f.From(liar, far);
    f.From(liar, Progress{Version(5), {{.step = Step(4)}, {.step = Step(5)}}});
  }
  f.From(own, far, metric.lane);
  f.From(own, next, metric.lane);  // of version 6, which it does not call committed
  f.From(own, Progress{Version(uint64_t{1} << 50), {{.step = Step(5)}}}, metric.lane);
  CHECK(f.recorder.rows.size() == 5);
  CHECK(f.scheduler->committed() == Version(5));
  f.MakeTo(7);
  CHECK(f.recorder.rows ==
        std::vector{Step(0), Step(1), Step(2), Step(3), Step(4), Step(5), Step(6)});
}

TEST_CASE("a slice of the test set is evaluated by the worker that was given it") {
  LiarFixture f;
  f.MakeTo(1000);
  const auto* slice = f.recorder.LastTo<Evaluate>(Incarnation(20));
  REQUIRE(slice != nullptr);
  const EvaluationResult result{
      .version = slice->version, .sample_count = 100, .confusion = {{0, 0, 100}}};
  f.From(21, result);
  f.From(31, result);
  CHECK(f.recorder.evaluations.empty());
  f.From(20, result);
  CHECK(f.recorder.evaluations.size() == 1);
}

TEST_CASE("processes without work do not make a server look silent") {
  LiarFixture f(StoringPlan(2, 2));
  f.Wait(milliseconds(1100));
  const PeerId server = f.scheduler->view().shards[0].primary;
  for (uint64_t who = 31; who < 35; ++who) {
    if (who > 31) f.Join(who, Role::kWorker);
    f.From(who, PeerSilent{server, 5000});
    f.From(who, PeerSilent{server, 5000});
  }
  // A server's report of a worker is none: no lane waits for a worker's answers.
  f.From(10, PeerSilent{{f.NodeFor(20), Incarnation(20), 0}, 5000});
  CHECK(f.IsNamed(server.incarnation.value()));
  CHECK(f.CountShares(20) > 0);
}

TEST_CASE("a failure of training costs its sender, and the run if another process has it too") {
  LiarFixture f;
  f.Add(22, Role::kWorker);
  f.Commit(5);
  f.From(31, Failure{"forged"});
  f.From(20, Failure{"loss is not a number"});
  REQUIRE(f.scheduler->phase() == Scheduler::Phase::kTraining);
  CHECK(f.recorder.LastTo<Refused>(Incarnation(20)) != nullptr);
  CHECK(f.NodeFor(20) != f.NodeFor(21));
  f.Wait(milliseconds(10));
  CHECK(f.CountShares(20) == 0);
  SUBCASE("a step is made: it was that process") {
    f.Commit(6);
    f.From(21, Failure{"loss is not a number"});
    CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
    f.Commit(7);
    f.From(22, Failure{"loss is not a number"});  // the last one
    CHECK(f.scheduler->membership().members().Find(Incarnation(22)) != nullptr);
  }
  SUBCASE("no step is made: it is the work") {
    f.From(21, Failure{"loss is not a number"});
    f.Store(5);
    f.Wait(std::chrono::seconds(9));
    CHECK(f.scheduler->stop().text == "worker 1 on h: loss is not a number");
  }
}

TEST_CASE("a process that is not ready reports nothing but itself") {
  LiarFixture f;
  f.MakeTo(5);
  const size_t sent = f.recorder.sent.size();
  f.From(30, ScalarsRequest{Step(0)});
  f.From(30, Progress{Version(5), {}});
  f.From(30, ViewAck{f.scheduler->view().id, 0});
  f.From(30, SnapshotAtAck{Version(5)});
  CHECK(f.recorder.sent.size() == sent);
  f.From(30, Heartbeat{});
  CHECK(f.recorder.sent.size() == sent + 1);
}

}  // namespace
}  // namespace pando
