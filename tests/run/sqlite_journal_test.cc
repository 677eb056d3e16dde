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
#include "tests/run/journal_states.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

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
