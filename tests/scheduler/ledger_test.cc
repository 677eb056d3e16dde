// The scheduler's ledgers, each by itself.
#include <doctest/doctest.h>

#include "scheduler/gradient_comparison.h"
#include "scheduler/members/fault_ledger.h"
#include "scheduler/snapshots.h"

namespace pando {
namespace {

using std::chrono::milliseconds;

constexpr Micros kStart{1'000'000};
const FaultLedger::Subject kSubject{"worker 1", {"h", 7}};

Micros At(int ms) { return kStart + milliseconds(ms); }

FaultNote Note(const std::string& action, int injected_ms, int exited_ms) {
  return {.action = action,
          .role = Role::kWorker,
          .host = "h",
          .process_id = 7,
          .target = "worker 1",
          .injected_us = injected_ms < 0 ? 0 : static_cast<uint64_t>(At(injected_ms).count()),
          .exited_us = exited_ms < 0 ? 0 : static_cast<uint64_t>(At(exited_ms).count())};
}

std::vector<SnapshotManifest> TakeDropped(SnapshotLedger& ledger) {
  ledger.OnJournaled();
  return ledger.TakeDropped();
}

TEST_CASE("however many snapshots are given up, few are remembered and all stay given up") {
  SnapshotLedger ledger({.shard_count = 1}, 0, {}, {}, {});
  CHECK(ledger.OnStored({ShardId(0), Version(5), 1, "file-5", ""}) ==
        SnapshotLedger::Taken::kPending);
  for (uint64_t version = 10; version <= 2000; version += 10)
    ledger.OnStored({ShardId(0), Version(version), 1, "", "the disk is full"});
  CHECK_FALSE(ledger.Ripe().has_value());
  for (uint64_t version : {5, 10, 1000, 2000}) CHECK(ledger.IsGivenUp(Version(version)));
  CHECK_FALSE(ledger.IsGivenUp(Version(2010)));
  CHECK(TakeDropped(ledger).size() == 1);  // of version 5
}

TEST_CASE("an injected fault, its exit and its detection are one record") {
  FaultLedger ledger(kStart, {});
  ledger.OnNote(At(10), kSubject, Note("kill", 9, -1), Step(5));
  ledger.OnNote(At(12), kSubject, Note("exit", -1, 11), Step(6));
  ledger.OnDetected(At(12), kSubject, "exit", "exit", Step(6));
  REQUIRE(ledger.records().size() == 1);
  const FaultRecord record = ledger.records()[0];
  CHECK(record.action == "kill");
  CHECK(record.step == Step(5));
  CHECK(record.injected_ms == 9);
  CHECK(record.detected_ms == 12);
  CHECK(record.detected_by == "exit");
  CHECK(record.recovered_ms < 0);
}

TEST_CASE("a note that comes after the lease has run out tells what it was") {
  FaultLedger ledger(kStart, {});
  ledger.OnDetected(At(1000), kSubject, "silence", "lease", Step(6));
  ledger.OnNote(At(1500), kSubject, Note("stop", 3, -1), Step(8));
  REQUIRE(ledger.records().size() == 1);
  CHECK(ledger.records()[0].action == "stop");
  CHECK(ledger.records()[0].detected_ms == 1000);
  CHECK(ledger.records()[0].detected_by == "lease");
}

TEST_CASE("a process can be stopped again after it has recovered") {
  FaultLedger ledger(kStart, {});
  for (int at : {100, 500}) {
    ledger.OnNote(At(at), kSubject, Note("stop", at, -1), Step(1));
    ledger.OnDetected(At(at + 10), kSubject, "silence", "lease", Step(1));
    ledger.OnView({1, 2});
    ledger.OnProgress(At(at + 20), {1, 2}, Version(3), true);
  }
  REQUIRE(ledger.records().size() == 2);
  CHECK(ledger.records()[1].injected_ms == 500);
}

TEST_CASE("a process fails again before its first fault is noticed") {
  FaultLedger ledger(kStart, {});
  ledger.OnNote(At(100), kSubject, Note("stop", 100, -1), Step(10));
  ledger.OnNote(At(300), kSubject, Note("kill", 299, 300), Step(30));
  ledger.OnNote(At(310), kSubject, Note("stop", 100, -1),
                Step(31));  // its acknowledgement was lost
  REQUIRE(ledger.records().size() == 2);
  CHECK(ledger.records()[0].action == "stop");
  CHECK(ledger.records()[0].injected_ms == 100);
  CHECK(ledger.records()[0].detected_ms < 0);
  CHECK(ledger.records()[1].action == "kill");
  CHECK(ledger.records()[1].injected_ms == 299);
  CHECK(ledger.records()[1].step == Step(30));
  CHECK(ledger.records()[1].detected_ms == 300);
}

TEST_CASE("a process that ends was not ended by an unnoticed stop or partition") {
  FaultLedger ledger(kStart, {});
  SUBCASE("a worker that crashes") {
    ledger.OnNote(At(100), kSubject, Note("partition", 100, -1), Step(10));
    ledger.OnNote(At(900), kSubject, Note("exit", -1, 899), Step(90));
    ledger.OnNote(At(910), kSubject, Note("exit", -1, 899), Step(90));  // repeated
    REQUIRE(ledger.records().size() == 2);
    CHECK(ledger.records()[1].action == "exit");
  }
  SUBCASE("a scheduler that is killed, and whose next life knows it before the note comes") {
    const FaultLedger::Subject scheduler{"scheduler", {"h", 99}};
    ledger.OnNote(At(100), scheduler, Note("partition", 100, -1), Step(10));
    ledger.OnDetected(At(920), {.target = "scheduler"}, "exit", "exit", Step(90));
    ledger.OnNote(At(930), scheduler, Note("kill", 890, 891), Step(90));
    REQUIRE(ledger.records().size() == 2);
    CHECK(ledger.records()[1].action == "kill");
  }
  CHECK(ledger.records()[0].action == "partition");
  CHECK(ledger.records()[0].detected_ms < 0);
  CHECK(ledger.records()[1].detected_by == "exit");
}

TEST_CASE("recovered is two steps after everybody has entered the answering view") {
  FaultLedger ledger(kStart, {});
  ledger.OnDetected(At(10), kSubject, "exit", "exit", Step(6));
  ledger.OnProgress(At(11), {1, 1}, Version(9), false);
  ledger.OnView({1, 2});
  ledger.OnProgress(At(12), {1, 1}, Version(12), false);
  ledger.OnProgress(At(13), {1, 2}, Version(12), false);
  ledger.OnProgress(At(14), {1, 2}, Version(13), false);
  CHECK(ledger.records()[0].recovered_ms < 0);
  SUBCASE("two steps") { ledger.OnProgress(At(15), {1, 3}, Version(14), false); }
  SUBCASE("the job's end") { ledger.OnProgress(At(15), {1, 2}, Version(13), true); }
  CHECK(ledger.records()[0].recovered_ms == 15);
}

TEST_CASE("a rollback counts its steps from where it begins") {
  FaultLedger ledger(kStart, {});
  ledger.OnDetected(At(10), kSubject, "exit", "exit", Step(60));
  ledger.OnView({1, 2});
  ledger.OnProgress(At(11), {1, 2}, Version(60), false);
  ledger.OnRollback();
  ledger.OnProgress(At(12), {1, 3}, Version(20), false);
  CHECK(ledger.records()[0].recovered_ms < 0);
  ledger.OnProgress(At(13), {1, 3}, Version(22), false);
  CHECK(ledger.records()[0].recovered_ms == 13);
}

TEST_CASE("a scheduler's fault is known by name until a note says which process it was") {
  FaultLedger ledger(kStart, {});
  ledger.OnDetected(At(300), {.target = "scheduler"}, "exit", "exit", Step(6));
  ledger.Recover(At(310), "scheduler");
  FaultNote note = Note("kill", 200, 201);
  note.role = Role::kScheduler;
  ledger.OnNote(At(320), {"scheduler", {"h", 99}}, note, Step(6));
  REQUIRE(ledger.records().size() == 1);
  CHECK(ledger.records()[0].detected_ms == 201);  // the supervisor saw it first
  CHECK(ledger.records()[0].process_id == 99);
  CHECK(ledger.records()[0].injected_ms == 200);
  ledger.OnDetected(At(900), {.target = "scheduler"}, "exit", "exit", Step(9));
  CHECK(ledger.records().size() == 2);
}

TEST_CASE("records of an earlier life keep their ids, and a repeated note finds them") {
  FaultLedger first(kStart, {});
  first.OnNote(At(10), kSubject, Note("kill", 9, 10), Step(5));
  FaultLedger second(kStart, first.records());
  second.OnNote(At(20), kSubject, Note("kill", 9, 10), Step(5));
  CHECK(second.records().size() == 1);
  second.OnDetected(At(30), {"worker 2", {"h", 8}}, "exit", "exit", Step(5));
  CHECK(second.records()[1].id == second.records()[0].id + 1);
  CHECK(second.TakeChanged().size() == 2);
  CHECK(second.TakeChanged().empty());
}

TEST_CASE("a flood of notes leaves a bounded ledger, and an exact count") {
  FaultLedger ledger(kStart, {});
  FaultNote note = Note(std::string(1024, 'a'), 1, -1);
  note.host = std::string(1024, 'h');
  for (uint32_t i = 1; i <= 5000; ++i) {
    note.process_id = i;
    const FaultLedger::Subject subject{std::string(1024, 't'), {note.host, i, 0}};
    ledger.OnNote(At(10), subject, note, Step(5));
    ledger.OnNote(At(10), subject, note, Step(5));  // repeated
  }
  CHECK(ledger.count() == 5000);
  CHECK(ledger.records().size() == 4096);
  for (const FaultRecord& record : ledger.records())
    REQUIRE(record.action.size() + record.target.size() + record.host.size() <= 400);
  FaultLedger later(kStart, ledger.records());
  CHECK(later.count() == 5000);
}

// ---- snapshots ---------------------------------------------------------------------------------

SnapshotStoredItem Stored(uint32_t shard, uint64_t version, const std::string& file = "f") {
  return {ShardId(shard), Version(version), 1, file + std::to_string(version), ""};
}

void CompleteAt(SnapshotLedger& ledger, uint64_t version) {
  for (uint32_t shard = 0; shard < 2; ++shard) ledger.OnStored(Stored(shard, version));
  REQUIRE(ledger.Ripe() == Version(version));
  ledger.MarkComplete(Version(version));
}

TEST_CASE("a snapshot is ripe when every shard is stored, and reports count once") {
  SnapshotLedger ledger({2, 2}, 0, {}, {}, {});
  CHECK(ledger.OnStored(Stored(0, 10)) == SnapshotLedger::Taken::kPending);
  CHECK(ledger.OnStored(Stored(0, 10)) == SnapshotLedger::Taken::kPending);
  CHECK_FALSE(ledger.Ripe());
  ledger.OnStored(Stored(1, 10));
  CHECK(ledger.Ripe() == Version(10));
  CHECK(ledger.MarkComplete(Version(10)).shards.size() == 2);
  CHECK(ledger.OnStored(Stored(0, 10)) == SnapshotLedger::Taken::kComplete);
  CHECK(TakeDropped(ledger).empty());
}

TEST_CASE("a shard that cannot be stored costs that snapshot, whose files go") {
  SnapshotLedger ledger({2, 2}, 0, {}, {}, {});
  ledger.OnStored(Stored(0, 10));
  CHECK(ledger.OnStored({ShardId(1), Version(10), 0, "", "the disk is full"}) ==
        SnapshotLedger::Taken::kGivenUp);
  REQUIRE(TakeDropped(ledger).size() == 1);
  CHECK(ledger.OnStored(Stored(0, 10, "late")) == SnapshotLedger::Taken::kGivenUp);
  REQUIRE(ledger.TakeDropped().size() == 1);
  CompleteAt(ledger, 20);
}

TEST_CASE("reports that come again while the journal waits for a disk leave nothing behind") {
  SnapshotLedger ledger({2, 2}, 0, {}, {}, {});
  ledger.OnStored({ShardId(1), Version(10), 0, "", "the disk is full"});
  for (int repeat = 0; repeat < 3; ++repeat) {
    CHECK(ledger.OnStored(Stored(0, 10)) == SnapshotLedger::Taken::kGivenUp);
    CHECK_FALSE(ledger.IsGivenUpForGood(Version(10)));
  }
  CHECK(TakeDropped(ledger).empty());
  CHECK(ledger.OnStored(Stored(0, 10)) == SnapshotLedger::Taken::kGivenUp);
  CHECK(ledger.IsGivenUpForGood(Version(10)));
  CHECK(ledger.TakeDropped().size() == 1);
}

TEST_CASE("a backup's hash completes nothing, and another one gives the snapshot up in any order") {
  const SnapshotStoredItem honest{ShardId(0), Version(10), 1, "", ""};
  SnapshotStoredItem forged = Stored(0, 10);
  forged.hash = 2;
  SnapshotLedger ledger({1, 2}, 0, {}, {}, {});
  CHECK(ledger.OnStored(honest, "server 1") == SnapshotLedger::Taken::kPending);
  CHECK_FALSE(ledger.Ripe());
  CHECK_FALSE(ledger.IsKnown(Version(10)));
  SUBCASE("the backup's first") {
    CHECK(ledger.OnStored(forged, "server 0") == SnapshotLedger::Taken::kGivenUp);
  }
  SUBCASE("the primary's first, of the next version") {
    forged.version = Version(20);
    CHECK(ledger.OnStored(forged, "server 0") == SnapshotLedger::Taken::kPending);
    CHECK_FALSE(ledger.IsCompared(Version(20), ShardId(0)));
    const SnapshotStoredItem other{ShardId(0), Version(20), 1, "", ""};
    CHECK(ledger.OnStored(other, "server 1") == SnapshotLedger::Taken::kGivenUp);
  }
  SUBCASE("the same hash") {
    CHECK(ledger.OnStored(Stored(0, 10), "server 0") == SnapshotLedger::Taken::kPending);
    CHECK(ledger.IsCompared(Version(10), ShardId(0)));
    CHECK(ledger.MakeManifest(Version(10)).shards[0].file == "f10");
    ledger.MarkComplete(Version(10));
    CHECK(ledger.OnStored(honest, "server 1") == SnapshotLedger::Taken::kComplete);
    CHECK(TakeDropped(ledger).empty());
  }
  SUBCASE("a process does not confirm itself") {
    ledger.OnStored(Stored(0, 10), "server 1");
    CHECK_FALSE(ledger.IsCompared(Version(10), ShardId(0)));
  }
}

TEST_CASE("a newer complete snapshot gives up older ones that are not") {
  SnapshotLedger ledger({2, 2}, 0, {}, {}, {});
  ledger.OnStored(Stored(0, 10));
  CompleteAt(ledger, 20);
  CHECK(ledger.IsGivenUp(Version(10)));
  CHECK(TakeDropped(ledger).size() == 1);
}

TEST_CASE("the newest are kept, and one from which the next evaluation can be reached") {
  SnapshotLedger ledger({2, 2}, 0, {}, {}, {});
  for (uint64_t version : {10, 20, 30, 40}) {
    CompleteAt(ledger, version);
    ledger.Prune(Version(15));  // version 15 is still to be evaluated
  }
  REQUIRE(ledger.complete().size() == 3);
  CHECK(ledger.complete()[0].snapshot.version == Version(10));
  CHECK(ledger.complete()[1].snapshot.version == Version(30));
  CHECK(ledger.RestorePoint(Version(15)) == SnapshotRef{0, Version(10)});
  CHECK(ledger.RestorePoint(Version(100)) == SnapshotRef{0, Version(40)});
  CHECK(ledger.RestorePoint(Version(5)) == SnapshotRef{});
  const auto dropped = TakeDropped(ledger);
  REQUIRE(dropped.size() == 1);
  CHECK(dropped[0].snapshot.version == Version(20));
  CHECK(ledger.OnStored(Stored(1, 20)) == SnapshotLedger::Taken::kGivenUp);  // a late repeat
}

TEST_CASE("the best version that has a snapshot is kept until a better one has") {
  SnapshotLedger ledger({2, 1}, 0, {}, {}, {});
  const auto prune = [&](const std::vector<Version>& best_first) {
    ledger.Prune(Version(1000), best_first);
    std::vector<Version> kept;
    for (const auto& manifest : ledger.complete()) kept.push_back(manifest.snapshot.version);
    return kept;
  };
  CompleteAt(ledger, 10);
  CompleteAt(ledger, 20);
  CHECK(prune({Version(10)}) == std::vector{Version(10), Version(20)});
  CompleteAt(ledger, 30);
  CHECK(prune({Version(40), Version(10), Version(20)}) == std::vector{Version(10), Version(30)});
  CompleteAt(ledger, 40);
  CHECK(prune({Version(40), Version(10), Version(20)}) == std::vector{Version(40)});
}

TEST_CASE("what a generation began from is kept until it has completed another (P30)") {
  SnapshotLedger ledger({2, 1}, 0, {}, {}, {});
  CompleteAt(ledger, 10);
  CompleteAt(ledger, 20);
  ledger.StartGeneration(1, {0, Version(10)});
  ledger.Prune(Version(1000));
  CHECK(ledger.complete().size() == 2);
  CompleteAt(ledger, 20);  // of this generation
  ledger.Prune(Version(1000));
  REQUIRE(ledger.complete().size() == 1);
  CHECK(ledger.complete()[0].snapshot == SnapshotRef{1, Version(20)});
}

TEST_CASE("a new generation forgets what the old one had begun to store") {
  SnapshotLedger ledger({2, 2}, 0, {}, {}, {});
  ledger.OnStored(Stored(0, 10));
  ledger.StartGeneration(1, {});
  CHECK(TakeDropped(ledger).size() == 1);
  CHECK_FALSE(ledger.IsKnown(Version(10)));
}

// ---- verification ------------------------------------------------------------------------------

JobPlan VerifiedPlan() {
  Job job;
  job.steps = 100;
  job.micro_batches = 4;
  job.verify_every = 1;
  const DataFacts data{.train_samples = 1'000'000};
  return JobPlan(job, data, TensorLayout({{.name = "w", .shape = {20}}, MetricTensorSpec()}));
}

std::optional<Dispute> Report(VerifyLedger& ledger, uint32_t worker, uint64_t step, uint32_t m,
                              uint64_t hash, uint64_t kind = 1) {
  return ledger.OnReport(Step(step), MicroBatch(m),
                         {NodeId(worker), "worker " + std::to_string(worker), kind, hash});
}

const VerifyLedger::WorkerCounts kPair{{1, 2}};
const VerifyLedger::WorkerCounts kTwoKinds{{1, 1}, {2, 1}};

TEST_CASE("a step is settled when two workers agree on each of its micro-batches") {
  const JobPlan plan = VerifiedPlan();
  VerifyLedger ledger(plan);
  for (uint32_t m = 0; m < 4; ++m) {
    CHECK_FALSE(Report(ledger, 1, 0, m, 5));
    CHECK_FALSE(Report(ledger, 1, 0, m, 5));  // repeated
  }
  ledger.Advance(At(0), Version(1), kPair);
  CHECK(ledger.settled_below() == Step(0));
  for (uint32_t m = 0; m < 3; ++m) CHECK_FALSE(Report(ledger, 2, 0, m, 5));
  CHECK_FALSE(Report(ledger, 2, 0, 3, 0));  // has none to give
  ledger.Advance(At(1), Version(1), kPair);
  CHECK(ledger.settled_below() == Step(1));
}

TEST_CASE("workers that differ are both named") {
  const JobPlan plan = VerifiedPlan();
  VerifyLedger ledger(plan);
  Report(ledger, 1, 3, 2, 5);
  const auto dispute = Report(ledger, 2, 3, 2, 6);
  REQUIRE(dispute);
  CHECK(dispute->step == Step(3));
  CHECK(dispute->micro_batch == MicroBatch(2));
  CHECK(dispute->first.worker == NodeId(1));
  CHECK(dispute->second.hash == 6);
  CHECK(dispute->second.name == "worker 2");
}

TEST_CASE("a second opinion is waited for, but not for ever, and not where there is none") {
  const JobPlan plan = VerifiedPlan();
  VerifyLedger ledger(plan);
  ledger.Advance(At(0), Version(3), kPair);
  ledger.Advance(At(1900), Version(50), kPair);
  CHECK(ledger.settled_below() == Step(0));
  ledger.Advance(At(2100), Version(60), kPair);
  CHECK(ledger.settled_below() == Step(3));
  ledger.Advance(At(2200), Version(60), kTwoKinds);
  CHECK(ledger.settled_below() == Step(60));
}

TEST_CASE("a word that comes after its step is settled still counts, for a while") {
  const JobPlan plan = VerifiedPlan();
  VerifyLedger ledger(plan);
  for (uint32_t m = 0; m < 4; ++m) {
    for (uint32_t worker : {1, 2}) Report(ledger, worker, 0, m, 5);
  }
  ledger.Advance(At(0), Version(1), kPair);
  REQUIRE(ledger.settled_below() == Step(1));
  CHECK_FALSE(Report(ledger, 3, 0, 2, 5));
  CHECK(Report(ledger, 3, 0, 2, 6));
  ledger.Advance(At(2100), Version(1), kPair);
  CHECK_FALSE(Report(ledger, 3, 0, 2, 6));
}

TEST_CASE("workers of different kinds are not compared, nor waited for (P40)") {
  const JobPlan plan = VerifiedPlan();
  VerifyLedger ledger(plan);
  for (uint32_t m = 0; m < 4; ++m) {
    CHECK_FALSE(Report(ledger, 1, 0, m, 5, 1));
    CHECK_FALSE(Report(ledger, 2, 0, m, 6, 2));
  }
  ledger.Advance(At(0), Version(1), {{1, 2}, {2, 1}});
  CHECK(ledger.settled_below() == Step(0));
  ledger.Advance(At(1), Version(1), kTwoKinds);
  CHECK(ledger.settled_below() == Step(1));
  CHECK(ledger.state().agreed_count == 0);
  CHECK(ledger.state().unverified_count == 4);
}

TEST_CASE(
    "a micro-batch that is settled without two equal hashes is unverified until they arrive") {
  const JobPlan plan = VerifiedPlan();
  VerifyLedger ledger(plan);
  for (uint32_t m = 0; m < 4; ++m) Report(ledger, 1, 0, m, 5);
  for (uint32_t m = 0; m < 2; ++m) Report(ledger, 2, 0, m, 5);
  for (uint32_t m = 2; m < 4; ++m) Report(ledger, 2, 0, m, 0);
  ledger.Advance(At(0), Version(1), kPair);
  CHECK(ledger.state().agreed_count == 2);
  CHECK(ledger.state().unverified_count == 2);
  Report(ledger, 3, 0, 3, 5);
  CHECK(ledger.state().agreed_count == 3);
  CHECK(ledger.state().unverified_count == 1);
}

TEST_CASE("a ledger that goes on does not count what an earlier life may have settled") {
  const JobPlan plan = VerifiedPlan();
  VerifyLedger ledger(plan);
  ledger.Resume({.settled_below = Step(3), .agreed_count = 10, .unverified_count = 2});
  ledger.Advance(At(0), Version(0), kPair);
  ledger.Advance(At(100), Version(8), kPair);
  Report(ledger, 1, 7, 0, 5);
  ledger.Advance(At(2200), Version(9), kPair);
  CHECK(ledger.settled_below() == Step(8));
  CHECK(ledger.state().agreed_count == 10);
  CHECK(ledger.state().unverified_count == 3);
}

}  // namespace
}  // namespace pando
