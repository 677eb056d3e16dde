#include "run/sqlite_journal.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "common/atomic_file.h"
#include "common/hash.h"
#include "common/text.h"

namespace pando {
namespace {

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

struct Binder {
  sqlite3_stmt* statement;
  int index;  // from 1
  int operator()(std::monostate) const { return sqlite3_bind_null(statement, index); }
  int operator()(int64_t value) const { return sqlite3_bind_int64(statement, index, value); }
  int operator()(double value) const { return sqlite3_bind_double(statement, index, value); }
  int operator()(const std::string& value) const {
    return sqlite3_bind_text64(statement, index, value.data(), value.size(), SQLITE_TRANSIENT,
                               SQLITE_UTF8);
  }
};

SqlValue ReadColumn(sqlite3_stmt* statement, int column) {
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
      return int64_t{sqlite3_column_int64(statement, column)};
    case SQLITE_FLOAT:
      return sqlite3_column_double(statement, column);
    case SQLITE_NULL:
      return std::monostate();
    default: {
      const void* bytes = sqlite3_column_blob(statement, column);
      const auto size = static_cast<size_t>(sqlite3_column_bytes(statement, column));
      return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), size);
    }
  }
}

const JournalTable& MetaTable() { return JournalTables().front(); }

std::string KeyColumns(const JournalTable& table) {
  const auto first = table.columns.begin();
  return Joined(std::vector(first, first + static_cast<ptrdiff_t>(table.key_count)));
}

std::string CreateStatement(const JournalTable& table) {
  return fmt::format("CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY ({})) WITHOUT ROWID;",
                     table.name, Joined(table.columns), KeyColumns(table));
}

std::string InsertStatement(const JournalTable& table) {
  const std::vector<std::string> marks(table.columns.size(), "?");
  return fmt::format("INSERT OR REPLACE INTO {} VALUES ({})", table.name, Joined(marks));
}

std::string DeleteStatement(const JournalTable& table) {
  const std::vector<std::string> marks(table.key_count, "?");
  return fmt::format("DELETE FROM {} WHERE ({}) = ({})", table.name, KeyColumns(table),
                     Joined(marks));
}

SqlRow KeyFor(const JournalTable& table, const SqlRow& row) {
  return {row.begin(), row.begin() + static_cast<ptrdiff_t>(table.key_count)};
}

Status QuickCheck(SqliteDb& db) {
  PANDO_ASSIGN_OR_RETURN(std::vector<SqlRow> check, db.Query("PRAGMA quick_check(1)"));
  const auto* verdict = std::get_if<std::string>(&check[0][0]);
  if (verdict != nullptr && *verdict == "ok") return Status();
  return Corrupt(verdict == nullptr ? "quick_check" : *verdict);
}

// Says what to do where the file itself is the trouble.
Status Explained(const std::string& path, const Status& status) {
  if (status.code() != StatusCode::kCorrupt) return status;
  return Corrupt(
      fmt::format("{} is damaged: {}; the run cannot continue from it. `pando export` still reads "
                  "the snapshots; pando train --force starts it from the beginning",
                  path, status.message()));
}

}  // namespace

void SqliteDb::Close::operator()(sqlite3* db) const { sqlite3_close(db); }

Status SqliteDb::Error() const {
  const int code = sqlite3_errcode(db_.get());
  const std::string text = fmt::format("{}: {}", path_, sqlite3_errmsg(db_.get()));
  if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) return Corrupt(text);
  const int system = sqlite3_system_errno(db_.get());
  const bool is_io = code == SQLITE_IOERR || code == SQLITE_CANTOPEN;
  if (code == SQLITE_FULL || (is_io && (system == ENOSPC || system == EDQUOT)))
    return NoSpace(text + "; free some space");
  return Unavailable(text);
}

namespace {

// As OpenForOwner. A file that exists is not opened: closing it would end this process's locks.
// SQLite's other files get the mode of the first. What cannot be made SQLite says itself.
void KeepForOwner(const std::string& path) {
  for (const char* end : {"-wal", "-shm"}) (void)!chmod((path + end).c_str(), 0600);
  if (chmod(path.c_str(), 0600) != 0 && errno == ENOENT) (void)OpenForOwner(path);
}

}  // namespace

Result<SqliteDb> SqliteDb::Open(std::string path) {
  return Open(std::move(path), SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
}

Result<SqliteDb> SqliteDb::OpenToRead(std::string path) {
  return Open(std::move(path), SQLITE_OPEN_READONLY);
}

Result<SqliteDb> SqliteDb::Open(std::string path, int flags) {
  SqliteDb db(std::move(path));
  if ((flags & SQLITE_OPEN_CREATE) != 0) KeepForOwner(db.path_);
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(db.path_.c_str(), &raw, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  db.db_.reset(raw);
  if (code != SQLITE_OK) return db.Error();
  return db;
}

Status SqliteDb::Execute(const std::string& sql) {
  const int code = sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status() : Error();
}

Result<std::vector<SqlRow>> SqliteDb::Query(const std::string& sql,
                                            std::span<const SqlValue> values) {
  sqlite3_stmt* raw = nullptr;
  const int code =
      sqlite3_prepare_v2(db_.get(), sql.data(), static_cast<int>(sql.size()), &raw, nullptr);
  const Statement statement(raw);
  if (code != SQLITE_OK) return Error();
  for (size_t i = 0; i < values.size(); ++i) {
    const Binder binder{raw, static_cast<int>(i) + 1};
    if (std::visit(binder, values[i]) != SQLITE_OK) return Error();
  }
  std::vector<SqlRow> rows;
  int step = sqlite3_step(raw);
  for (; step == SQLITE_ROW; step = sqlite3_step(raw)) {
    SqlRow row;
    for (int c = 0; c < sqlite3_column_count(raw); ++c) row.push_back(ReadColumn(raw, c));
    rows.push_back(std::move(row));
  }
  if (step != SQLITE_DONE) return Error();
  return rows;
}

std::string SqliteVersion() { return sqlite3_libversion(); }

// ---- the journal --------------------------------------------------------------------------------

SqliteJournal::Locking SqliteJournal::LockingFor(const std::string& path) {
  struct statfs info {};
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (statfs(folder.empty() ? "." : folder.c_str(), &info) != 0) return Locking::kShared;
  // Of linux/magic.h and the file systems' own headers: NFS, SMB, CIFS, SMB2, FUSE, Ceph, Lustre,
  // GPFS, BeeGFS.
  constexpr std::array<uint32_t, 9> kOfNetworks{0x6969,     0x517B,     0xFF534D42,
                                                0xFE534D42, 0x65735546, 0x00C36400,
                                                0x0BD00BD0, 0x47504653, 0x19830326};
  const auto type = static_cast<uint32_t>(info.f_type);
  return std::ranges::find(kOfNetworks, type) != kOfNetworks.end() ? Locking::kExclusive
                                                                   : Locking::kShared;
}

Result<SqliteJournal> SqliteJournal::Open(const std::string& path, uint64_t leader,
                                          Locking locking) {
  PANDO_ASSIGN_OR_RETURN(SqliteDb db, SqliteDb::Open(path));
  SqliteJournal journal(std::move(db), leader);
  Status s = journal.SetUp(locking);
  if (!s.ok()) return Explained(path, s);
  return journal;
}

Status SqliteJournal::Check(const std::string& path) {
  std::error_code ignored;  // a file that cannot be looked at shows when it is opened
  if (!std::filesystem::exists(path, ignored)) return NotFound(path + " is missing");
  PANDO_ASSIGN_OR_RETURN(SqliteDb db, SqliteDb::OpenToRead(path));
  if (const Status s = QuickCheck(db); !s.ok()) return Explained(path, s);
  const auto rows = db.Query("SELECT count(*) FROM meta");
  const auto* count = rows.ok() ? std::get_if<int64_t>(&(*rows)[0][0]) : nullptr;
  if (count == nullptr || *count == 0) return NotFound(path + " is empty");
  return Status();
}

Status SqliteJournal::SetUp(Locking locking) {
  Status s =
      db_.Execute(fmt::format("PRAGMA busy_timeout = {}; PRAGMA locking_mode = {};", kBusyTimeoutMs,
                              locking == Locking::kExclusive ? "EXCLUSIVE" : "NORMAL"));
  if (!s.ok()) return s;
  PANDO_ASSIGN_OR_RETURN(std::vector<SqlRow> version, db_.Query("PRAGMA user_version"));
  const int64_t schema = std::get<int64_t>(version[0][0]);
  if (schema != 0 && schema != kSchemaVersion) {
    return InvalidArgument(
        fmt::format("{} has the tables of another release of Pando (schema {}, and this one has "
                    "{}); continue with that release",
                    db_.path(), schema, kSchemaVersion));
  }
  PANDO_RETURN_IF_ERROR(QuickCheck(db_));
  s = db_.Execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;");
  if (!s.ok() || schema == kSchemaVersion) return s;  // a full disk must not keep a run's file shut
  std::string sql = "BEGIN IMMEDIATE;";
  for (const JournalTable& table : JournalTables()) sql += CreateStatement(table);
  sql += fmt::format("PRAGMA user_version = {}; COMMIT;", kSchemaVersion);
  return db_.Execute(sql);
}

// ---- reading ------------------------------------------------------------------------------------

Result<std::optional<SchedulerState>> SqliteJournal::ReadState() {
  std::optional<SchedulerState> state;
  const Status s = Transact([&] { return TakeLead(&state); });
  has_taken_lead_ = s.ok() && state.has_value();
  if (!s.ok()) return Explained(db_.path(), s);
  return state;
}

Status SqliteJournal::TakeLead(std::optional<SchedulerState>* state) {
  SchedulerState read;
  for (const JournalTable& table : JournalTables()) {
    PANDO_ASSIGN_OR_RETURN(std::vector<SqlRow> rows, ReadTable(table));
    if (&table == &MetaTable() && rows.empty()) return Status();
    PANDO_RETURN_IF_ERROR(ReadRows(table.name, rows, &read));
  }
  *state = std::move(read);
  return db_.Query(InsertStatement(MetaTable()), LeaderRow()).status();
}

// In the order of its key.
Result<std::vector<SqlRow>> SqliteJournal::ReadTable(const JournalTable& table) {
  return db_.Query(fmt::format("SELECT {} FROM {} ORDER BY {}", Joined(table.columns), table.name,
                               KeyColumns(table)));
}

SqlRow SqliteJournal::LeaderRow() const { return {"leader", HexText(leader_)}; }

// ---- writing ------------------------------------------------------------------------------------

Status SqliteJournal::Commit(const SchedulerState& state) {
  if (is_fenced()) return fence_;
  Tables tables = KeyedRows(state);
  const Status s = Transact([&] { return Write(state.term, tables); });
  if (s.ok()) written_ = std::move(tables);
  return s;
}

Status SqliteJournal::Transact(const std::function<Status()>& change) {
  Status s = db_.Execute("BEGIN IMMEDIATE");
  if (s.ok()) s = change();
  if (s.ok()) s = db_.Execute("COMMIT");
  if (!s.ok()) (void)db_.Execute("ROLLBACK");  // of a transaction that may not have begun
  return s;
}

Status SqliteJournal::Write(uint64_t term, const Tables& tables) {
  PANDO_RETURN_IF_ERROR(CheckLeader(term));
  for (const JournalTable& table : JournalTables())
    PANDO_RETURN_IF_ERROR(WriteChanges(table, tables.at(table.name)));
  return Status();
}

Status SqliteJournal::CheckLeader(uint64_t term) {
  PANDO_ASSIGN_OR_RETURN(std::vector<SqlRow> rows, ReadTable(MetaTable()));
  std::map<SqlValue, SqlValue> meta;
  for (const SqlRow& row : rows) meta.emplace(row[0], row[1]);
  const auto* stored = std::get_if<int64_t>(&meta["term"]);
  const int64_t led = stored == nullptr ? 0 : *stored;
  const auto ours = static_cast<int64_t>(term);
  const bool is_led_by_us = meta["leader"] == LeaderRow().back();
  const bool is_other = led > ours || (!is_led_by_us && (led == ours || has_taken_lead_));
  if (rows.empty() || !is_other) return Status();
  fence_ = Unavailable(fmt::format(
      "{}: another scheduler leads this run (term {}, and this one had {}); this one leaves",
      db_.path(), led, ours));
  return fence_;
}

SqliteJournal::Tables SqliteJournal::KeyedRows(const SchedulerState& state) const {
  std::map<std::string, std::vector<SqlRow>> rows = MakeRows(state);
  rows["meta"].push_back(LeaderRow());
  // A view never changes; its row is large, so it is made once.
  const SqlRow view_key{static_cast<int64_t>(state.view.id.term),
                        static_cast<int64_t>(state.view.id.number)};
  const auto views = written_.find("views");
  const bool is_written = views != written_.end() && views->second.contains(view_key);
  if (!is_written && state.view.id != ViewId{}) rows["views"].push_back(MakeRow(state.view));
  Tables tables;
  for (const JournalTable& table : JournalTables()) {
    Rows& keyed = tables[table.name];
    for (SqlRow& row : rows[table.name]) keyed.emplace(KeyFor(table, row), std::move(row));
  }
  if (is_written) tables["views"] = views->second;
  return tables;
}

// Views are added and only the oldest go; of other tables, rows that are no more go as well.
Status SqliteJournal::WriteChanges(const JournalTable& table, const Rows& rows) {
  const bool is_history = table.name == std::string_view("views");
  if (written_.empty() && !is_history) {  // the first commit of this life
    PANDO_RETURN_IF_ERROR(db_.Execute(fmt::format("DELETE FROM {}", table.name)));
  }
  const Rows before = written_.empty() ? Rows() : written_.at(table.name);
  bool has_added = false;
  for (const auto& [key, row] : before) {
    if (is_history || rows.contains(key)) continue;
    if (auto done = db_.Query(DeleteStatement(table), key); !done.ok()) return done.status();
  }
  for (const auto& [key, row] : rows) {
    const auto old = before.find(key);
    if (old != before.end() && old->second == row) continue;
    if (auto done = db_.Query(InsertStatement(table), row); !done.ok()) return done.status();
    has_added = true;
  }
  if (!is_history || !has_added) return Status();
  return db_.Execute(
      fmt::format("DELETE FROM views WHERE (term, number) NOT IN (SELECT term, number FROM views "
                  "ORDER BY term DESC, number DESC LIMIT {})",
                  kViewsKept));
}

}  // namespace pando
