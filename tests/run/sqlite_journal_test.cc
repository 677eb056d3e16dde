#include "run/sqlite_journal.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>

#include "tests/contains.h"
#include "tests/repeated.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLeader = 0xfedcba9876543210;

PeerId Server(uint32_t node, uint16_t lane = 0) {
  return {NodeId(node), Incarnation(0xf000000000000000 + node), lane};
}

View SmallView(uint64_t number) {
  View view{.id = {3, number}, .generation = 2, .restore = {1, Version(500)}};
  view.nodes = {{.node = NodeId(1),
                 .incarnation = Server(1).incarnation,
                 .role = Role::kServer,
                 .rank = 0,
                 .host = "caf\xc3\xa9",
                 .lane_endpoints = {"tcp://127.0.0.1:1", "ipc:///tmp/\"x\""}},
                {.node = NodeId(9), .role = Role::kWorker, .rank = 4, .host = "b"}};
  view.shards = {{.primary = Server(1, 1),
                  .in_sync_backups = {Server(2)},
                  .syncing_backups = {{Server(3, 7), {3, 41}}}},
                 {}};
  view.owners = {{NodeId(9), Step(7), NodeId(8)}, {kUnknownNode, Step(0)}};
  return view;
}

SchedulerState SmallState() {
  SchedulerState state{.job = JobId(UINT64_MAX), .term = 3, .next_node = 10, .view = SmallView(42)};
  state.members.push_back(
      {.peer = Server(1),
       .registration = {.role = Role::kServer,
                        .host = "a",
                        .process_id = UINT32_MAX,
                        .lane_endpoints = {"tcp://127.0.0.1:1"}},
       .rank = 2,
       .is_ready = true,
       .ready = {.kind = "cpu", .probe_hash = UINT64_MAX, .data_fingerprint = 1},
       .is_draining = true});
  state.members.push_back({.peer = {NodeId(9), Incarnation(1), 0}});
  state.snapshots = {
      {{1, Version(500)}, {{UINT64_MAX, "g001-v000000500-a-0.safetensors"}, {0, ""}}},
      {{2, Version(1000)}, {}}};
  state.given_up = {.below = Version(100), .versions = {Version(200), Version(600)}};
  state.evaluations = {{Version(469), 10000, 9850, 1.0 / 3},
                       {Version(938), 4, 3, 0.25, 4, {{1, 1}, {3, 2}}, {1, 0, UINT64_MAX, 2}}};
  state.verification = {
      .settled_below = Step(77),
      .agreed_count = 5,
      .unverified_count = 2,
      .open_dispute =
          Dispute{1, Step(70), MicroBatch(3), {NodeId(8), "worker 0", 9, UINT64_MAX}, {}}};
  state.faults = {{.id = 1,
                   .action = "kill",
                   .target = "worker 1",
                   .host = "a",
                   .process_id = 77,
                   .step = Step(100),
                   .injected_ms = 0,
                   .detected_ms = 1.5,
                   .detected_by = "exit",
                   .recovered_ms = 20.25},
                  {.id = 2, .action = "silence", .target = "server 0", .step = Step(7)}};
  return state;
}

// Rows are what a state comes to; they are compared here, not the code's structs.
JournalRows AllRows(const SchedulerState& state) {
  JournalRows rows = MakeChange({}, state).changed;
  rows.insert(MakeRow(state.view));
  return rows;
}

struct JournalFile {
  TempFolder temp;
  std::string path = temp.path() + "/scheduler.db";
  SqliteJournal Open(uint64_t leader = kLeader) const {
    Result<SqliteJournal> journal = SqliteJournal::Open(path, leader);
    REQUIRE_MESSAGE(journal.ok(), journal.status().message());
    return *std::move(journal);
  }
  SchedulerState Read() const {
    SqliteJournal journal = Open();
    Result<std::optional<SchedulerState>> state = journal.ReadState();
    REQUIRE_MESSAGE(state.ok(), state.status().message());
    REQUIRE(state->has_value());
    return **state;
  }
};

TEST_CASE("a new file has no state, and an empty state survives") {
  JournalFile file;
  SqliteJournal journal = file.Open();
  CHECK_FALSE(journal.ReadState()->has_value());
  REQUIRE(journal.Commit(SchedulerState{}).ok());
  CHECK(AllRows(file.Read()) == AllRows(SchedulerState{}));
}

TEST_CASE("every field survives, the largest numbers and unknown times included") {
  JournalFile file;
  const SchedulerState state = SmallState();
  REQUIRE(file.Open().Commit(state).ok());
  const SchedulerState read = file.Read();
  CHECK(AllRows(read) == AllRows(state));
  CHECK(read.job == state.job);
  CHECK(read.view.id == ViewId{3, 42});
  CHECK(read.view.restore == SnapshotRef{1, Version(500)});
  CHECK(read.view.nodes[0].lane_endpoints[1] == "ipc:///tmp/\"x\"");
  CHECK(read.view.nodes[1].role == Role::kWorker);
  CHECK(read.view.shards[0].syncing_backups[0] == SyncingBackup{Server(3, 7), {3, 41}});
  CHECK(read.view.shards[1].primary == PeerId{});
  CHECK(read.view.owners[0].previous == NodeId(8));
  CHECK(read.view.owners[1].worker == kUnknownNode);
  CHECK(read.members[0].peer == Server(1));
  CHECK(read.members[0].registration.process_id == UINT32_MAX);
  CHECK(read.members[0].ready.probe_hash == UINT64_MAX);
  CHECK(read.members[0].is_draining);
  CHECK_FALSE(read.members[1].is_ready);
  CHECK(read.snapshots[0].shards[0].hash == UINT64_MAX);
  CHECK(read.given_up.below == Version(100));
  CHECK(read.given_up.versions == state.given_up.versions);
  CHECK(read.evaluations[0].loss_sum == 1.0 / 3);
  CHECK(read.evaluations[0].classes.empty());
  CHECK(read.evaluations[1].top5_count == 4);
  CHECK(read.evaluations[1].classes == state.evaluations[1].classes);
  CHECK(read.evaluations[1].confusion == state.evaluations[1].confusion);
  CHECK(read.faults[0].injected_ms == 0);
  CHECK(read.faults[0].recovered_ms == 20.25);
  CHECK(read.faults[1].injected_ms == -1);
  CHECK(read.faults[1].detected_by == "");
  CHECK(read.verification.settled_below == Step(77));
  CHECK(read.verification.unverified_count == 2);
  REQUIRE(read.verification.open_dispute);
  CHECK(read.verification.open_dispute->first.name == "worker 0");
  CHECK(read.verification.open_dispute->first.hash == UINT64_MAX);
}

TEST_CASE("a loss that is not a finite number stays as it is") {
  JournalFile file;
  SchedulerState state;
  state.evaluations = {{Version(1), 10, 1, std::numeric_limits<double>::quiet_NaN()}};
  REQUIRE(file.Open().Commit(state).ok());
  CHECK(std::isnan(file.Read().evaluations[0].loss_sum));
  state.evaluations[0].loss_sum = -std::numeric_limits<double>::infinity();
  REQUIRE(file.Open().Commit(state).ok());
  CHECK(file.Read().evaluations[0].loss_sum == state.evaluations[0].loss_sum);
  state.evaluations[0].sums = {0.5, std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::infinity()};
  REQUIRE(file.Open().Commit(state).ok());
  const std::vector<double> sums = file.Read().evaluations[0].sums;
  CHECK(sums[0] == 0.5);
  CHECK_FALSE(std::isfinite(sums[1]));
  CHECK_FALSE(std::isfinite(sums[2]));
}

TEST_CASE("commits follow each other: rows come, change and go, and the newest view holds") {
  JournalFile file;
  SchedulerState state = SmallState();
  SqliteJournal journal = file.Open();
  REQUIRE(journal.Commit(state).ok());
  state.view = SmallView(43);
  state.members.erase(state.members.begin());
  state.snapshots.erase(state.snapshots.begin());
  state.faults[1].recovered_ms = 9;
  state.is_completed = true;
  REQUIRE(journal.Commit(state).ok());
  CHECK(AllRows(file.Read()) == AllRows(state));
  state.faults.clear();
  REQUIRE(journal.Commit(state).ok());
  CHECK(AllRows(file.Read()) == AllRows(state));
}

TEST_CASE(
    "the next life of the scheduler goes on in the same file and drops what it does not know") {
  JournalFile file;
  SchedulerState state = SmallState();
  REQUIRE(file.Open(1).Commit(state).ok());
  state.term = 4;
  state.view = SmallView(1);
  state.view.id = {4, 1};
  state.members.clear();
  state.faults.clear();
  REQUIRE(file.Open(2).Commit(state).ok());
  CHECK(AllRows(file.Read()) == AllRows(state));
}

TEST_CASE("old views go, the newest stay") {
  JournalFile file;
  SqliteJournal journal = file.Open();
  SchedulerState state = SmallState();
  for (uint64_t number = 1; number <= 3 * SqliteJournal::kViewsKept; ++number) {
    state.view.id.number = number;
    REQUIRE(journal.Commit(state).ok());
  }
  CHECK(file.Read().view.id.number == 3 * SqliteJournal::kViewsKept);
  Result<SqliteDb> db = SqliteDb::Open(file.path);
  CHECK((*db->Query("SELECT count(*), min(json_extract(id, '$.number')) FROM views"))[0] ==
        SqlRow{std::to_string(SqliteJournal::kViewsKept),
               std::to_string(2 * SqliteJournal::kViewsKept + 1)});
}

TEST_CASE("of two schedulers on one file only the newer term can commit") {
  JournalFile file;
  SqliteJournal old_one = file.Open(1);
  SchedulerState state = SmallState();
  REQUIRE(old_one.Commit(state).ok());
  SqliteJournal new_one = file.Open(2);
  SchedulerState newer = state;
  newer.term = 4;
  REQUIRE(new_one.Commit(newer).ok());
  CHECK_FALSE(old_one.Commit(state).ok());
  CHECK(old_one.is_fenced());
  CHECK(old_one.Commit(state).message() ==
        file.path +
            ": another scheduler leads this run (term 4, and this one had 3); this one leaves");
  CHECK(new_one.Commit(newer).ok());
  // A fenced journal stays fenced for any term.
  state.term = 5;
  CHECK_FALSE(old_one.Commit(state).ok());
  CHECK(file.Read().term == 4);
}

TEST_CASE("of two schedulers that took the same term the first to commit leads") {
  JournalFile file;
  SqliteJournal one = file.Open(1);
  SqliteJournal other = file.Open(2);
  const SchedulerState state = SmallState();
  CHECK(one.Commit(state).ok());
  CHECK_FALSE(other.Commit(state).ok());
  CHECK(one.Commit(state).ok());
}

TEST_CASE("a scheduler that has read the file leads: nothing is added afterwards") {
  JournalFile file;
  SqliteJournal old_one = file.Open(1);
  SchedulerState state = SmallState();
  REQUIRE(old_one.Commit(state).ok());
  REQUIRE(old_one.ReadState().ok());
  REQUIRE(old_one.Commit(state).ok());
  SqliteJournal new_one = file.Open(2);
  REQUIRE(new_one.ReadState().ok());
  ++state.view.id.number;
  CHECK_FALSE(old_one.Commit(state).ok());
  CHECK(old_one.is_fenced());
  ++state.term;
  CHECK(new_one.Commit(state).ok());
}

TEST_CASE("a file that cannot be written is a failure that names it, and no fence") {
  JournalFile file;
  SqliteJournal journal = file.Open();
  REQUIRE(journal.Commit(SmallState()).ok());
  Result<SqliteDb> other = SqliteDb::Open(file.path);
  REQUIRE(other->Execute("BEGIN IMMEDIATE").ok());
  Result<SqliteDb> impatient = SqliteDb::Open(file.path);
  CHECK(impatient->Execute("BEGIN IMMEDIATE").message() == file.path + ": database is locked");
  REQUIRE(other->Execute("ROLLBACK; DROP TABLE journal").ok());
  CHECK(journal.Commit(SchedulerState{.term = 3}).message() ==
        file.path + ": no such table: main.journal");
  CHECK_FALSE(journal.is_fenced());
}

TEST_CASE(
    "on a network file system one process has the journal to itself, and no memory is shared") {
  JournalFile file;
  {
    auto journal = SqliteJournal::Open(file.path, kLeader, SqliteJournal::Locking::kExclusive);
    REQUIRE_MESSAGE(journal.ok(), journal.status().message());
    REQUIRE(journal->ReadState().ok());
    REQUIRE(journal->Commit(SmallState()).ok());
    CHECK_FALSE(std::filesystem::exists(file.path + "-shm"));
    const auto other = SqliteDb::Open(file.path)->Query("SELECT count(*) FROM meta");
    CHECK(other.status().message() == file.path + ": database is locked");
  }
  SqliteJournal next = file.Open();
  CHECK(std::filesystem::exists(file.path + "-shm"));
  const auto state = next.ReadState();
  REQUIRE(state.ok());
  CHECK((*state)->term == SmallState().term);
  CHECK(SqliteJournal::LockingFor(file.path) == SqliteJournal::Locking::kShared);
}

// ---- files that are no journal -----------------------------------------------------------------

TEST_CASE("a folder that is not there is named") {
  TempFolder temp;
  Result<SqliteJournal> journal = SqliteJournal::Open(temp.path() + "/none/scheduler.db", kLeader);
  REQUIRE_FALSE(journal.ok());
  CHECK(journal.status().message() ==
        temp.path() + "/none/scheduler.db: unable to open database file");
}

TEST_CASE("tables of another release are refused and left alone") {
  for (const std::string schema : {"4", "8", "99"}) {
    JournalFile file;
    const std::string sql = "PRAGMA user_version = " + schema + "; CREATE TABLE t (x)";
    REQUIRE(SqliteDb::Open(file.path)->Execute(sql).ok());
    Result<SqliteJournal> journal = SqliteJournal::Open(file.path, kLeader);
    REQUIRE_FALSE(journal.ok());
    const std::string named =
        "schema " + schema + ", and this one has " + std::to_string(SqliteJournal::kSchemaVersion);
    CHECK(journal.status().message().find(named) != std::string::npos);
  }
}

TEST_CASE("people find records by the names of their fields") {
  JournalFile file;
  REQUIRE(file.Open().Commit(SmallState()).ok());
  const auto rows = SqliteDb::Open(file.path)->Query(
      "SELECT json_extract(shards, '$[0].primary.node'), "
      "json_extract(nodes, '$[0].lane_endpoints[0]'), json_extract(owners, '$[1].worker'), "
      "json_extract(registration, '$.role'), action FROM views, members, faults "
      "WHERE json_extract(peer, '$.node') = 1 AND step = 100");
  REQUIRE_MESSAGE(rows.ok(), rows.status().message());
  CHECK(rows->at(0) ==
        SqlRow{"1", "tcp://127.0.0.1:1", std::to_string(UINT32_MAX), "server", "kill"});
}

TEST_CASE("only changed rows are written, and those that are no more go") {
  JournalFile file;
  SqliteJournal journal = file.Open();
  SchedulerState state = SmallState();
  REQUIRE(journal.Commit(state).ok());
  REQUIRE(SqliteDb::Open(file.path)
              ->Execute("UPDATE journal SET value = 'mark' "
                        "WHERE section NOT IN ('leader', 'state')")
              .ok());
  state.faults[0].recovered_ms = 30;
  state.members.pop_back();
  REQUIRE(journal.Commit(state).ok());
  const auto rows = SqliteDb::Open(file.path)->Query(
      "SELECT section, count(*), sum(value = 'mark') FROM journal GROUP BY section");
  REQUIRE(rows.ok());
  CHECK(*rows == std::vector<SqlRow>{{"evaluations", "2", "2"},
                                     {"faults", "2", "1"},
                                     {"leader", "1", "0"},
                                     {"members", "1", "1"},
                                     {"snapshots", "2", "2"},
                                     {"state", "1", "0"},
                                     {"views", "1", "1"}});
}

// Returns the reader's error after the change of a value, without the file's name.
std::string ErrorAfter(const std::string& section, const std::string& value) {
  JournalFile file;
  REQUIRE(file.Open().Commit(SmallState()).ok());
  const std::string sql =
      "UPDATE journal SET value = " + value + " WHERE section = '" + section + "'";
  REQUIRE(SqliteDb::Open(file.path)->Execute(sql).ok());
  Result<std::optional<SchedulerState>> state = file.Open().ReadState();
  REQUIRE_FALSE(state.ok());
  CHECK(state.status().code() == StatusCode::kCorrupt);
  CHECK(state.status().message().starts_with(file.path + " is damaged: "));
  return state.status().message().substr(file.path.size() + 13);
}

TEST_CASE("a value that does not fit names file, section, key and field") {
  const auto error_at = [](const std::string& section, const std::string& field,
                           const std::string& json) {
    return ErrorAfter(section, "json_set(value, '$." + field + "', json('" + json + "'))");
  };
  CHECK(error_at("faults", "step", "\"x\"")
            .starts_with("section faults, key '00000000000000000001': step: expected a whole "
                         "number, found \"x\"; the run cannot continue"));
  CHECK(Contains(error_at("members", "rank", "-1"), ": rank: -1 is out of range; "));
  CHECK(Contains(error_at("members", "registration.role", "\"king\""),
                 ": registration.role: expected one of "));
  CHECK(Contains(error_at("members", "peer", "{\"node\": 1}"), ": peer.incarnation: is missing; "));
  for (const char* wrong : {"-1", "4294967296", "1.5", "true"}) {
    CAPTURE(wrong);
    CHECK(Contains(error_at("members", "registration.process_id", wrong),
                   ": registration.process_id: "));
  }
  CHECK(Contains(error_at("members", "peer.incarnation", "\"xyz\""), ": peer.incarnation: "));
  const std::string deep = Repeated("[", 200'000) + Repeated("]", 200'000);
  CHECK(Contains(ErrorAfter("members", "'{\"peer\": " + deep + "}'"),
                 ": its JSON is nested too deeply; "));
  CHECK(ErrorAfter("views", "'[[1'")
            .starts_with("section views, key '00000000000000000003, 00000000000000000042': "
                         "expected JSON, found [[1; "));
  CHECK(Contains(ErrorAfter("views", "'{\"id\": 1}'"), ": id: expected an object, found 1; "));
  CHECK(error_at("state", "term", "null")
            .starts_with("section state, key '': term: expected a whole number, found null; "));
  CHECK(ErrorAfter("state", "NULL").starts_with("section state, key '': expected JSON, found ; "));
}

TEST_CASE("a section that is unknown or missing is named") {
  JournalFile file;
  REQUIRE(file.Open().Commit(SmallState()).ok());
  const auto error_after = [&](const std::string& sql) {
    REQUIRE(SqliteDb::Open(file.path)->Execute(sql).ok());
    return file.Open().ReadState().status().message();
  };
  CHECK(Contains(error_after("INSERT INTO journal VALUES ('songs', '1', '{}')"),
                 "is damaged: section songs, key '1': the section is unknown; "));
  CHECK(Contains(error_after("DELETE FROM journal WHERE section = 'state'"),
                 "is damaged: section state is missing; "));
}

TEST_CASE("damaged pages are an error, never a crash") {
  JournalFile file;
  {
    SqliteJournal journal = file.Open();
    REQUIRE(journal.Commit(SmallState()).ok());
  }  // closed: all is in the main file
  std::ifstream in(file.path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  int refused_count = 0;
  for (size_t first = 0; first < whole.size(); first += 997) {
    std::string damaged = whole;
    for (size_t i = first; i < std::min(first + 64, damaged.size()); ++i) damaged[i] ^= 0x5a;
    std::ofstream(file.path, std::ios::binary) << damaged;
    Result<SqliteJournal> journal = SqliteJournal::Open(file.path, kLeader);
    Status status = journal.ok() ? journal->ReadState().status() : journal.status();
    if (status.ok()) continue;
    ++refused_count;
    CAPTURE(status.message());
    CHECK(status.message().find(file.path) != std::string::npos);
  }
  CHECK(refused_count > 0);
  std::ofstream(file.path, std::ios::binary)
      << "not a database, and long enough to look like one....";
  Result<SqliteJournal> journal = SqliteJournal::Open(file.path, kLeader);
  REQUIRE_FALSE(journal.ok());
  CHECK(journal.status().message().find("file is not a database") != std::string::npos);
}

TEST_CASE("a commit of a new view takes milliseconds") {
  JournalFile file;
  SqliteJournal journal = file.Open();
  SchedulerState state = SmallState();
  state.view.shards.assign(64, state.view.shards[0]);
  state.view.owners.assign(64, state.view.owners[0]);
  std::vector<double> ms;
  for (uint64_t number = 1; number <= 101; ++number) {
    state.view.id.number = number;
    const auto start = std::chrono::steady_clock::now();
    REQUIRE(journal.Commit(state).ok());
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                     .count());
  }
  std::ranges::sort(ms);
  MESSAGE("64 shards: median ", ms[50], " ms, maximum ", ms[100], " ms");
}

}  // namespace
}  // namespace pando
