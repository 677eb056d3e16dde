// The parts that guard what the run has made, each alone: Snapshots, SnapshotRequests,
// GradientComparison, RunPhase's rollbacks.
#include <doctest/doctest.h>

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
  f.parts.snapshots.OnSnapshotStored(f.now, f.server, stored);
}

// The first rows of a run that has committed this version.
void ReportRows(PartsFixture& f, uint64_t version, uint64_t count) {
  Progress progress{.committed = Version(version), .rows = {}};
  for (uint64_t step = 0; step < count; ++step) progress.rows.push_back({.step = Step(step)});
  f.parts.progress.OnProgress(f.now, {.view = f.parts.views.view().id, .sender = f.server},
                              progress);
}

// ---- Snapshots ---------------------------------------------------------------------------------

TEST_CASE("a snapshot is complete when stored, verified and its rows are known") {
  PartsFixture f(VerifyingPlan());
  f.StartTraining();
  ReportRows(f, 10, 9);
  StoreAll(f, 10);
  f.parts.snapshots.Tick(f.now, /*settled_below=*/Step(10));
  CHECK(f.recorder.snapshots.empty());
  ReportRows(f, 10, 10);
  f.parts.snapshots.Tick(f.now, /*settled_below=*/Step(9));
  CHECK(f.recorder.snapshots.empty());
  CHECK(f.SentTo<SnapshotAck>(f.server).empty());
  f.parts.snapshots.Tick(f.now, /*settled_below=*/Step(10));
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
  CHECK(f.parts.snapshots.ledger().IsGivenUp(Version(20)));
}

// ---- SnapshotRequests --------------------------------------------------------------------------

struct RequestFixture : PartsFixture {
  RequestFixture() { StartTraining(); }
};

TEST_CASE("a version a little ahead is asked for until every lane has acknowledged it") {
  RequestFixture f;
  f.Commit(10);
  const Version version = f.parts.requests.Ask(f.now);
  CHECK(version > Version(11));
  CHECK(f.parts.requests.Ask(f.now) == version);
  f.parts.requests.RepeatTo(f.server);
  CHECK(f.SentTo<SnapshotAt>(f.server).size() == 1);
  f.parts.requests.OnSnapshotAtAck(f.server, {version});
  f.parts.requests.RepeatTo(f.server);
  CHECK(f.SentTo<SnapshotAt>(f.server).empty());
  f.parts.requests.StartGeneration(f.now);
  f.parts.requests.RepeatTo(f.server);
  CHECK(f.SentTo<SnapshotAt>(f.server).size() == 1);
}

TEST_CASE("a request is done when the version is complete, and refused after several attempts") {
  RequestFixture f;
  const Version version = f.parts.requests.Ask(f.now);
  CHECK_FALSE(f.parts.requests.TakeResult(f.now));
  SUBCASE("complete") {
    ReportRows(f, version.value(), version.value());
    StoreAll(f, version.value());
    f.parts.snapshots.Tick(f.now, Step(0));
    CHECK(f.parts.requests.TakeResult(f.now)->outcome == CommandOutcome::kDone);
  }
  SUBCASE("given up each time") {
    f.parts.snapshots.ledger().GiveUp(version);
    for (int attempt = 1; attempt < 6; ++attempt) CHECK_FALSE(f.parts.requests.TakeResult(f.now));
    CHECK(f.parts.requests.TakeResult(f.now)->outcome == CommandOutcome::kRefused);
  }
  CHECK_FALSE(f.parts.requests.TakeResult(f.now));
}

// ---- GradientComparison -------------------------------------------------------------------------

TEST_CASE("two workers that differ make the run begin again; a third tells which was wrong") {
  PartsFixture f(VerifyingPlan());
  f.StartTraining();
  const PeerId second = f.parts.members.Find(Incarnation(21))->peer;
  const PeerId third = f.Add(22, Role::kWorker);
  const auto give = [&f](MicroBatch m, NodeId worker) {
    View view = f.parts.views.view();
    view.nodes = f.parts.members.NodeInfos(SumUse::kOff, {});
    view.owners[m.value()].worker = worker;
    f.parts.views.Publish(std::move(view));
    f.parts.ownership.OnView();
  };
  give(MicroBatch(0), second.node);  // which so is the verifier of the others
  f.Commit(7);
  f.parts.verification.OnGradientHashes(f.now, f.worker, {{{Step(6), MicroBatch(3), 5}}});
  CHECK_FALSE(f.parts.verification.has_dispute());
  f.parts.verification.OnGradientHashes(f.now, third, {{{Step(6), MicroBatch(3), 6}}});
  CHECK_FALSE(f.parts.verification.has_dispute());  // P46: it neither owns it nor verifies it
  f.parts.verification.OnGradientHashes(f.now, second, {{{Step(6), MicroBatch(3), 6}}});
  REQUIRE(f.parts.verification.has_dispute());
  CHECK(f.parts.phase.is_rolling_back());
  CHECK(f.journal.state);
  CHECK(f.parts.verification.RestoreBound() == Version(6));
  std::vector<NodeId> workers(8, f.worker.node);
  workers[7] = third.node;
  f.parts.verification.AppointJudge(workers);
  CHECK(workers[3] == third.node);
  f.parts.phase.RollBack();
  give(MicroBatch(3), third.node);
  f.parts.verification.OnGradientHashes(f.now, third, {{{Step(6), MicroBatch(3), 5}}});
  CHECK_FALSE(f.parts.verification.has_dispute());
  CHECK(f.parts.members.Find(second.node)->is_leaving);
  CHECK_FALSE(f.parts.members.Find(f.worker.node)->is_leaving);
}

// ---- Rollback ----------------------------------------------------------------------------------

TEST_CASE("a rollback waits a moment for the servers that the job wants, and needs one") {
  PartsFixture f;
  CHECK_FALSE(f.parts.phase.MayRollBack(f.now, f.parts.members.CountReady(Role::kServer),
                                        2));  // none is pending
  f.parts.phase.PlanRollback(f.now, "first");
  f.parts.phase.PlanRollback(f.now, "second");
  const Micros later = f.now + std::chrono::seconds(1);
  CHECK_FALSE(f.parts.phase.MayRollBack(later, f.parts.members.CountReady(Role::kServer), 2));
  f.Add(10, Role::kServer);
  CHECK_FALSE(f.parts.phase.MayRollBack(f.now, f.parts.members.CountReady(Role::kServer), 2));
  CHECK(f.parts.phase.MayRollBack(f.now, f.parts.members.CountReady(Role::kServer), 1));
  CHECK(f.parts.phase.MayRollBack(later, f.parts.members.CountReady(Role::kServer), 2));
  f.parts.phase.DelayRollback(later + Micros(1));
  CHECK_FALSE(f.parts.phase.MayRollBack(later, f.parts.members.CountReady(Role::kServer), 2));
  CHECK(f.parts.phase.RollBack() == "first");
  CHECK_FALSE(f.parts.phase.is_rolling_back());
}

TEST_CASE("a view that the journal does not know makes the run begin again, if it leads (P26)") {
  PartsFixture f;
  f.StartTraining();
  const Member& member = *f.parts.members.Find(f.worker.node);
  SUBCASE("the journal takes our term") {
    f.parts.claims.OnClaim(f.now, member.peer, {5, 1}, 3);
    CHECK(f.parts.phase.is_rolling_back());
    CHECK(f.journal.state->term == 6);
  }
  SUBCASE("another scheduler leads") {
    f.journal.refuses = true;
    f.parts.claims.OnClaim(f.now, member.peer, {5, 1}, 3);
    CHECK_FALSE(f.parts.phase.is_rolling_back());
    CHECK(f.parts.outbox.is_fenced());
  }
}

}  // namespace
}  // namespace pando
