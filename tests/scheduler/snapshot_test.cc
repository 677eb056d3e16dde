// Snapshots, the end, and verification, as the scheduler runs them.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/scheduler/scheduler_fixture.h"

namespace pando {
namespace {

JobPlan StoringPlan(uint32_t workers = 2, uint32_t replicas = 2) {
  JobPlan plan = PlanOf(workers, 2, replicas);
  plan.job.snapshot_every = 10;
  plan.job.eval_every_epochs = 0;
  return plan;
}

class StoringFixture : public Fixture {
 public:
  explicit StoringFixture(JobPlan plan_in = StoringPlan()) : Fixture(std::move(plan_in)) {
    snapshot_dir = "/snapshots";
    StartScheduler();
  }
  // Steps up to here are made; their rows are known.
  void MakeTo(uint64_t version) {
    Commit(version);
    std::vector<StepMetrics> rows;
    for (uint64_t step = made_; step < version; ++step) rows.push_back({.step = Step(step)});
    const PeerId lane = scheduler->view().shards.back().primary;
    From(lane.incarnation.value(), Progress{Version(version), rows}, lane.lane);
    made_ = std::max(made_, version);
  }
  void Store(uint64_t version, const std::string& failure = "") {
    const auto& shards = scheduler->view().shards;
    for (uint32_t s = 0; s < shards.size(); ++s) {
      const std::string file = "v" + std::to_string(version);
      From(shards[s].primary.incarnation.value(),
           SnapshotStored{{{ShardId(s), Version(version), 1, file, s == 0 ? failure : ""}}},
           shards[s].primary.lane);
    }
  }

 private:
  uint64_t made_ = 0;
};

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
  CHECK(f.scheduler->fenced());
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
  const RestoreFailed damaged{{0, Version(20)}, ShardId(0), true, "v20: hash differs"};
  f.From(12, damaged);
  f.From(10, damaged);
  CHECK(f.recorder.HasEvent("snapshot-unreadable"));
  CHECK(f.recorder.forgotten == std::vector{SnapshotRef{0, Version(20)}});
  CHECK(f.scheduler->view().generation == 2);
  CHECK(f.scheduler->view().restore == SnapshotRef{0, Version(10)});
  CHECK(f.recorder.dropped.empty());  // its files are left for people to look at
  f.From(10, RestoreFailed{{0, Version(10)}, ShardId(1), true, "v10: cut"});
  CHECK(f.scheduler->view().restore == SnapshotRef{});
  CHECK(f.journal.state->snapshots.empty());
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  f.From(10, Failure{"something else"});
  CHECK(f.scheduler->stop().reason == StopReason::kFailed);
}

TEST_CASE("a server that cannot read a sound snapshot is passed over, and the snapshot kept") {
  StoringFixture f(StoringPlan(1, 1));
  f.StartAll();
  f.MakeTo(25);
  f.Store(20);
  f.Exit(11, Role::kServer);
  f.Add(12, Role::kServer);  // on a machine where the folder is not mounted, say
  const RestoreFailed failed{{0, Version(20)}, ShardId(0), false, "v20: no such file"};
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
  CHECK(f.scheduler->fenced());
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
                                 .sender = {f.NodeOf(10), Incarnation(10), 0},
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

// ---- the end -----------------------------------------------------------------------------------

void Evaluate(StoringFixture& f) {
  const auto* slice = f.recorder.LastTo<pando::Evaluate>(Incarnation(20));
  REQUIRE(slice != nullptr);
  f.From(
      20,
      EvaluationResult{
          .version = slice->version, .slice = 0, .sample_count = 100, .confusion = {{0, 0, 100}}});
}

void Collect(StoringFixture& f) {
  const auto& shards = f.scheduler->view().shards;
  for (uint32_t s = 0; s < shards.size(); ++s) {
    const auto zeros = std::make_shared<const FloatBuffer>(f.plan.shards.range(ShardId(s)).size());
    f.From(shards[s].primary.incarnation.value(),
           Params{{{ShardId(s), f.plan.steps.final_version(),
                    Blob(std::as_bytes(zeros->span()), zeros)}}},
           shards[s].primary.lane);
  }
}

TEST_CASE("the run is finished when evaluated, collected and stored, and the journal says so") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(1000);
  Evaluate(f);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kCollecting);
  Collect(f);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kCollecting);
  SUBCASE("the final snapshot is stored") { f.Store(1000); }
  SUBCASE("the disk is full") { f.Store(1000, "no space left on device"); }
  CHECK(f.recorder.has_weights);
  CHECK(f.journal.state->is_finished);
  CHECK(f.scheduler->stop().reason == StopReason::kCompleted);
  f.StartScheduler();
  f.scheduler->Tick(f.now);
  CHECK(f.scheduler->stop().reason == StopReason::kCompleted);
}

size_t PullsTo(const StoringFixture& f, PeerId lane) {
  return std::ranges::count_if(f.recorder.sent, [&](const Envelope& envelope) {
    return envelope.receiver == lane && std::holds_alternative<Pull>(envelope.message);
  });
}

TEST_CASE("final weights are asked for again after silence, not while they come") {
  StoringFixture f(StoringPlan(1, 1));
  f.StartAll();
  f.MakeTo(1000);
  Evaluate(f);
  REQUIRE(f.scheduler->phase() == Scheduler::Phase::kCollecting);
  const PeerId primary = f.scheduler->view().shards[0].primary;
  CHECK(PullsTo(f, primary) == 1);
  const auto zeros = std::make_shared<const FloatBuffer>(f.plan.shards.range(ShardId(0)).size());
  const Params first{
      {{ShardId(0), f.plan.steps.final_version(), Blob(std::as_bytes(zeros->span()), zeros)}}};
  for (int i = 0; i < 10; ++i) {  // a slow link: the others come later
    f.Wait(milliseconds(400));
    f.From(primary.incarnation.value(), first, primary.lane);
  }
  CHECK(PullsTo(f, primary) == 1);
  f.Wait(milliseconds(800));
  CHECK(PullsTo(f, primary) == 2);
  f.Wait(milliseconds(1300));
  CHECK(PullsTo(f, primary) == 3);
  f.Wait(std::chrono::minutes(1));
  CHECK(PullsTo(f, primary) <= 20);
  Collect(f);
  f.Store(1000);
  CHECK(f.scheduler->stop().reason == StopReason::kCompleted);
}

TEST_CASE("the end waits for a disk that does not take the final weights") {
  StoringFixture f;
  f.StartAll();
  f.MakeTo(1000);
  Evaluate(f);
  f.Store(1000, "no space left on device");
  f.recorder.disk = NoSpace("no space left on device");
  Collect(f);
  f.Wait(std::chrono::seconds(10));
  CHECK(f.scheduler->phase() == Scheduler::Phase::kCollecting);
  CHECK_FALSE(f.journal.state->is_finished);
  CHECK(std::ranges::count(f.recorder.events, "weights-failed", &RunEvent::name) == 1);
  SUBCASE("somebody frees some space") {
    f.recorder.disk = Status();
    f.Wait(std::chrono::seconds(2));
    CHECK(f.journal.state->is_finished);
    CHECK(f.scheduler->stop().reason == StopReason::kCompleted);
  }
  SUBCASE("nobody does: the run can be resumed") {
    f.now += std::chrono::minutes(31);
    f.scheduler->Tick(f.now);
    CHECK(f.scheduler->stop().reason == StopReason::kFailed);
    CHECK_FALSE(f.journal.state->is_finished);
  }
}

TEST_CASE("a shard lost at the very end is trained again, and evaluated once") {
  StoringFixture f(StoringPlan(1, 1));
  f.StartAll();
  f.MakeTo(1000);
  f.Store(500);
  Evaluate(f);
  const Micros trained = f.scheduler->TrainingTime(f.now);
  f.Wait(milliseconds(100));
  CHECK(f.scheduler->TrainingTime(f.now) == trained);
  f.Exit(11, Role::kServer);
  f.Add(12, Role::kServer);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
  CHECK(f.scheduler->view().restore.version == Version(500));
  const Micros before = f.scheduler->TrainingTime(f.now);
  f.Wait(milliseconds(100));
  CHECK(f.scheduler->TrainingTime(f.now) == before + milliseconds(100));
  f.Commit(1000);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kCollecting);
  CHECK(f.recorder.evaluations.size() == 1);
  const Micros after = f.scheduler->TrainingTime(f.now);
  f.Wait(milliseconds(100));
  CHECK(f.scheduler->TrainingTime(f.now) == after);
  Collect(f);
  f.Store(1000);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kStopping);
}

TEST_CASE("a run restored from its last version has its final snapshot already") {
  StoringFixture f(StoringPlan(1, 1));
  f.StartAll();
  f.MakeTo(1000);
  Evaluate(f);
  f.Store(1000);
  f.Exit(11, Role::kServer);
  f.Add(12, Role::kServer);
  REQUIRE(f.scheduler->view().restore.version == Version(1000));
  f.Commit(1000);
  Collect(f);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kStopping);
  CHECK(f.scheduler->stop().reason == StopReason::kCompleted);
}

// ---- verification ------------------------------------------------------------------------------

JobPlan VerifyingPlan(uint32_t workers) {
  JobPlan plan = StoringPlan(workers);
  plan.job.verify_every = 1;
  return plan;
}

void Report(StoringFixture& f, uint64_t who, uint64_t step, uint32_t m, uint64_t hash) {
  f.From(who, GradientHashes{{{Step(step), MicroBatch(m), hash}}});
}

TEST_CASE("a snapshot waits until its steps are verified") {
  StoringFixture f(VerifyingPlan(2));
  f.StartAll();
  f.MakeTo(10);
  f.Store(10);
  CHECK(f.recorder.snapshots.empty());
  for (uint64_t step = 0; step < 10; ++step) {
    for (uint32_t m = 0; m < 8; ++m) {
      Report(f, 20, step, m, 5);
      Report(f, 21, step, m, 5);
    }
  }
  CHECK(f.recorder.snapshots.size() == 1);
  Report(f, 21, 9, 7, 5);  // repeated
  CHECK(f.recorder.LastTo<GradientHashesAck>(Incarnation(21))->below == Step(10));
}

TEST_CASE("of two workers that differ a third tells which is wrong, and it is drained") {
  StoringFixture f(VerifyingPlan(3));
  f.StartAll();
  f.MakeTo(7);
  Report(f, 20, 6, 0, 5);
  Report(f, 21, 6, 0, 6);
  CHECK(f.recorder.HasEvent("dispute"));
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.scheduler->view().owners[0].worker == f.NodeOf(22));
  Report(f, 20, 6, 0, 5);  // a party's word does not count
  CHECK_FALSE(f.recorder.HasEvent("wrong-gradient"));
  Report(f, 22, 6, 0, 5);
  CHECK(f.recorder.HasEvent("wrong-gradient"));
  CHECK(f.NodeOf(21) == kUnknownNode);
  REQUIRE(f.recorder.LastTo<Stop>(Incarnation(21)) != nullptr);
  CHECK(f.recorder.LastTo<Stop>(Incarnation(21))->reason == StopReason::kDrained);
  CHECK(f.scheduler->view().generation == 1);
}

TEST_CASE("of two workers the one that errs once is found by the replay") {
  StoringFixture f(VerifyingPlan(2));
  f.StartAll();
  f.MakeTo(7);
  Report(f, 20, 6, 0, 5);
  Report(f, 21, 6, 0, 6);
  Report(f, 20, 6, 0, 6);
  CHECK(f.NodeOf(20) == kUnknownNode);
  CHECK(f.SharesOf(21) == 8);
}

TEST_CASE("what was made of a wrong gradient is neither kept nor restored") {
  StoringFixture f(VerifyingPlan(3));
  f.StartAll();
  f.MakeTo(20);
  f.Wait(std::chrono::seconds(3));  // nobody speaks: patience ends
  f.Store(10);
  f.Store(20);
  REQUIRE(f.recorder.snapshots.size() == 2);
  f.MakeTo(30);
  Report(f, 20, 25, 0, 5);
  Report(f, 21, 25, 0, 6);
  CHECK(f.scheduler->view().restore.version == Version(20));
}

TEST_CASE("a wrong gradient is no more accepted when the worker that made it has left") {
  StoringFixture f(VerifyingPlan(3));
  f.StartAll();
  f.MakeTo(7);
  Report(f, 20, 6, 0, 5);
  f.Exit(20, Role::kWorker);
  Report(f, 21, 6, 0, 6);
  CHECK(f.recorder.HasEvent("dispute"));
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.scheduler->view().owners[0].worker == f.NodeOf(22));
  Report(f, 22, 6, 0, 6);
  REQUIRE(f.recorder.events.back().name == "wrong-gradient");
  CHECK(f.recorder.events.back().text.starts_with("worker 0 (process 120 on h)"));
  CHECK(f.NodeOf(21) != kUnknownNode);
}

TEST_CASE("the one worker that is left of two judges, though its word comes after the version") {
  StoringFixture f(VerifyingPlan(2));
  f.StartAll();
  f.MakeTo(7);
  Report(f, 20, 6, 0, 5);
  f.Exit(20, Role::kWorker);
  Report(f, 21, 6, 0, 6);
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.SharesOf(21) == 8);
  f.MakeTo(7);
  f.Wait(milliseconds(100));
  CHECK_FALSE(f.recorder.HasEvent("wrong-gradient"));
  Report(f, 21, 6, 0, 6);
  CHECK(f.recorder.HasEvent("wrong-gradient"));
}

TEST_CASE("an evaluation of what a wrong gradient made does not outlive the dispute") {
  StoringFixture f(VerifyingPlan(2));
  f.StartAll();
  const uint64_t last = f.plan.steps.step_count();
  f.MakeTo(last);
  REQUIRE(f.recorder.LastTo<pando::Evaluate>(Incarnation(20)) != nullptr);
  const pando::Evaluate request = *f.recorder.LastTo<pando::Evaluate>(Incarnation(20));
  f.Exit(11, Role::kServer);  // the rollback waits for it
  Report(f, 20, 6, 0, 5);
  Report(f, 21, 6, 0, 6);
  CHECK(f.scheduler->view().generation == 0);
  f.From(20, EvaluationResult{.version = request.version,
                              .slice = request.slice,
                              .sample_count = 100,
                              .confusion = {{0, 0, 100}}});
  CHECK(f.recorder.evaluations.empty());
  f.Wait(milliseconds(1500));
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.scheduler->phase() == Scheduler::Phase::kTraining);
}

TEST_CASE("a dispute survives the scheduler, and so does what is owed to it") {
  StoringFixture f(VerifyingPlan(3));
  f.StartAll();
  f.MakeTo(7);
  f.Exit(11, Role::kServer);  // the rollback waits for it
  Report(f, 20, 6, 0, 5);
  Report(f, 21, 6, 0, 6);
  REQUIRE(f.journal.state->verification.open_dispute);
  f.StartScheduler();
  f.Wait(milliseconds(1500));
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.scheduler->view().owners[0].worker == f.NodeOf(22));
  f.StartScheduler();
  f.Wait(milliseconds(100));
  CHECK(f.scheduler->view().generation == 1);
  CHECK(f.scheduler->view().owners[0].worker == f.NodeOf(22));
  Report(f, 22, 6, 0, 6);
  CHECK(f.recorder.HasEvent("wrong-gradient"));
  CHECK(f.NodeOf(20) == kUnknownNode);
  CHECK_FALSE(f.journal.state->verification.open_dispute);
}

TEST_CASE("a judge is of the parties' kind (P40)") {
  StoringFixture f(VerifyingPlan(3));
  for (uint64_t i = 0; i < 2; ++i) f.Add(10 + i, Role::kServer);
  for (uint64_t i = 0; i < 3; ++i) {
    f.Join(20 + i, Role::kWorker);
    f.From(20 + i, Ready{.probe_hash = i == 2 ? 2u : 1u, .data_fingerprint = 42});
  }
  f.MakeTo(7);
  Report(f, 20, 6, 0, 5);
  Report(f, 22, 6, 0, 7);  // of another kind
  CHECK_FALSE(f.recorder.HasEvent("dispute"));
  Report(f, 21, 6, 0, 6);
  CHECK(f.recorder.HasEvent("dispute"));
  CHECK(f.scheduler->view().owners[0].worker == f.NodeOf(20));
  Report(f, 22, 6, 0, 7);
  CHECK_FALSE(f.recorder.HasEvent("wrong-gradient"));
  Report(f, 20, 6, 0, 6);
  CHECK(f.recorder.HasEvent("wrong-gradient"));
}

}  // namespace
}  // namespace pando
