// The parts that guard what the run has made, each alone: Snapshots, SnapshotRequests,
// GradientComparison, Rollback.
#include <doctest/doctest.h>

#include "scheduler/snapshot_requests.h"
#include "tests/scheduler/parts_fixture.h"

namespace pando {
namespace {

JobPlan VerifyingPlan() {
  JobPlan plan = MakePlan(2, 2);
  plan.job.verify_every = 1;
  return plan;
}

void StoreAll(PartsFixture& f, uint64_t version, const std::string& failure = "") {
  SnapshotStored stored;
  for (uint32_t s = 0; s < f.plan.shards.shard_count(); ++s)
    stored.items.push_back({ShardId(s), Version(version), 1, "file", failure});
  f.snapshots.OnSnapshotStored(f.now, f.server, stored);
}

void ReportRows(PartsFixture& f, uint64_t count) {
  Progress progress{.committed = Version(count), .rows = {}};
  for (uint64_t step = 0; step < count; ++step) progress.rows.push_back({.step = Step(step)});
  f.run.progress.OnProgress(f.now, {.view = f.run.view().id, .sender = f.server}, progress);
}

// ---- Snapshots ---------------------------------------------------------------------------------

TEST_CASE("a snapshot is complete when stored, verified and its rows are known") {
  PartsFixture f(VerifyingPlan());
  f.StartTraining();
  f.Commit(10);
  StoreAll(f, 10);
  f.snapshots.Tick(f.now, /*settled_below=*/Step(10));
  CHECK(f.recorder.snapshots.empty());
  ReportRows(f, 10);
  f.snapshots.Tick(f.now, /*settled_below=*/Step(9));
  CHECK(f.recorder.snapshots.empty());
  CHECK(f.SentTo<SnapshotAck>(f.server).empty());
  f.snapshots.Tick(f.now, /*settled_below=*/Step(10));
  CHECK(f.recorder.snapshots == std::vector{SnapshotRef{0, Version(10)}});
  StoreAll(f, 10);  // repeated
  CHECK(f.SentTo<SnapshotAck>(f.server).size() == 1);
}

TEST_CASE("of many snapshots that fail in a row the first is reported") {
  JobPlan plan = MakePlan(2, 2);
  plan.job.snapshot_every = 10;
  PartsFixture f(std::move(plan));
  f.StartTraining();
  f.Commit(20);
  StoreAll(f, 10, "no space left on device");
  StoreAll(f, 20, "no space left on device");
  CHECK(std::ranges::count(f.recorder.events, "snapshot-failed", &RunEvent::name) == 1);
  CHECK(f.snapshots.ledger().IsGivenUp(Version(20)));
}

// ---- SnapshotRequests --------------------------------------------------------------------------

struct RequestFixture : PartsFixture {
  RequestFixture() : requests(run, snapshots) { StartTraining(); }
  SnapshotRequests requests;
};

TEST_CASE("a version a little ahead is asked for until every lane has acknowledged it") {
  RequestFixture f;
  f.Commit(10);
  const Version version = f.requests.Ask(f.now);
  CHECK(version > Version(11));
  CHECK(f.requests.Ask(f.now) == version);
  f.requests.RepeatTo(f.server);
  CHECK(f.SentTo<SnapshotAt>(f.server).size() == 1);
  f.requests.OnSnapshotAtAck(f.server, {version});
  f.requests.RepeatTo(f.server);
  CHECK(f.SentTo<SnapshotAt>(f.server).empty());
  f.requests.StartGeneration(f.now);
  f.requests.RepeatTo(f.server);
  CHECK(f.SentTo<SnapshotAt>(f.server).size() == 1);
}

TEST_CASE("a request is done when the version is complete, and refused after several attempts") {
  RequestFixture f;
  const Version version = f.requests.Ask(f.now);
  CHECK_FALSE(f.requests.TakeResult(f.now));
  SUBCASE("complete") {
    f.Commit(version.value());
    StoreAll(f, version.value());
    ReportRows(f, version.value());
    f.snapshots.Tick(f.now, Step(0));
    CHECK(f.requests.TakeResult(f.now)->outcome == CommandOutcome::kDone);
  }
  SUBCASE("given up each time") {
    f.snapshots.ledger().GiveUp(version);
    for (int attempt = 1; attempt < 6; ++attempt) CHECK_FALSE(f.requests.TakeResult(f.now));
    CHECK(f.requests.TakeResult(f.now)->outcome == CommandOutcome::kRefused);
  }
  CHECK_FALSE(f.requests.TakeResult(f.now));
}

// ---- GradientComparison -------------------------------------------------------------------------

TEST_CASE("two workers that differ make the run begin again; a third tells which was wrong") {
  PartsFixture f(VerifyingPlan());
  f.StartTraining();
  const PeerId second = f.run.members().Find(Incarnation(21))->peer;
  const PeerId third = f.Add(22, Role::kWorker);
  const auto give = [&f](MicroBatch m, NodeId worker) {
    View view = f.run.view();
    view.nodes = f.run.members().NodeInfos();
    view.owners[m.value()].worker = worker;
    f.run.views.Publish(std::move(view));
    f.ownership.OnView();
  };
  give(MicroBatch(0), second.node);  // which so is the verifier of the others
  f.Commit(7);
  f.verification.OnGradientHashes(f.now, f.worker, {{{Step(6), MicroBatch(3), 5}}});
  CHECK_FALSE(f.verification.has_dispute());
  f.verification.OnGradientHashes(f.now, third, {{{Step(6), MicroBatch(3), 6}}});
  CHECK_FALSE(f.verification.has_dispute());  // P46: it neither owns it nor verifies it
  f.verification.OnGradientHashes(f.now, second, {{{Step(6), MicroBatch(3), 6}}});
  REQUIRE(f.verification.has_dispute());
  CHECK(f.run.rollback.is_pending());
  CHECK(f.journal.state);
  CHECK(f.verification.RestoreBound() == Version(6));
  std::vector<NodeId> workers(8, f.worker.node);
  workers[7] = third.node;
  f.verification.AppointJudge(workers);
  CHECK(workers[3] == third.node);
  f.run.rollback.Take();
  give(MicroBatch(3), third.node);
  f.verification.OnGradientHashes(f.now, third, {{{Step(6), MicroBatch(3), 5}}});
  CHECK_FALSE(f.verification.has_dispute());
  CHECK(f.run.members().Find(second.node)->is_leaving);
  CHECK_FALSE(f.run.members().Find(f.worker.node)->is_leaving);
}

// ---- Rollback ----------------------------------------------------------------------------------

TEST_CASE("a rollback waits a moment for the servers that the job wants, and needs one") {
  PartsFixture f;
  CHECK_FALSE(f.run.rollback.IsPossible(f.now, 2));  // none is pending
  f.run.rollback.Plan(f.now, "first");
  f.run.rollback.Plan(f.now, "second");
  const Micros later = f.now + std::chrono::seconds(1);
  CHECK_FALSE(f.run.rollback.IsPossible(later, 2));
  f.Add(10, Role::kServer);
  CHECK_FALSE(f.run.rollback.IsPossible(f.now, 2));
  CHECK(f.run.rollback.IsPossible(f.now, 1));
  CHECK(f.run.rollback.IsPossible(later, 2));
  f.run.rollback.DelayUntil(later + Micros(1));
  CHECK_FALSE(f.run.rollback.IsPossible(later, 2));
  CHECK(f.run.rollback.Take() == "first");
  CHECK_FALSE(f.run.rollback.is_pending());
}

TEST_CASE("replicas that keep diverging end the run; only the primary's report counts (P8)") {
  PartsFixture f;
  f.StartTraining();
  const PeerId backup = f.run.members().Find(Incarnation(11))->peer;
  const Divergence divergence{.shard = ShardId(0), .version = Version(1), .backup = backup};
  f.run.rollback.OnDivergence(f.now, backup, divergence);
  CHECK_FALSE(f.run.rollback.is_pending());
  for (int i = 0; i < 3; ++i) {
    f.run.rollback.OnDivergence(f.now, f.server, divergence);
    REQUIRE(f.run.rollback.is_pending());
    f.run.rollback.Take();
  }
  f.run.rollback.OnDivergence(f.now, f.server, divergence);
  CHECK(f.run.phase.stop().reason == StopReason::kFailed);
}

TEST_CASE("a view that the journal does not know makes the run begin again, if it leads (P26)") {
  PartsFixture f;
  f.StartTraining();
  const Member& member = *f.run.members().Find(f.worker.node);
  SUBCASE("the journal takes our term") {
    f.run.rollback.OnNewsBeyond(f.now, member, {5, 1}, 3);
    CHECK(f.run.rollback.is_pending());
    CHECK(f.journal.state->term == 6);
  }
  SUBCASE("another scheduler leads") {
    f.journal.refuses = true;
    f.run.rollback.OnNewsBeyond(f.now, member, {5, 1}, 3);
    CHECK_FALSE(f.run.rollback.is_pending());
    CHECK(f.run.outbox.fenced());
  }
}

}  // namespace
}  // namespace pando
