#include "run/sqlite_journal.h"

#include <fmt/core.h>
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

std::string ColumnText(sqlite3_stmt* statement, int column) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, column));
  const auto size = static_cast<size_t>(sqlite3_column_bytes(statement, column));
  return text == nullptr ? std::string() : std::string(text, size);
}

Status QuickCheck(SqliteDb& db) {
  PANDO_ASSIGN_OR_RETURN(std::vector<SqlRow> check, db.Query("PRAGMA quick_check(1)"));
  return check[0][0] == "ok" ? Status() : Corrupt(check[0][0]);
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

// Does what OpenForOwner does, but does not open an existing file: closing it would release this
// process's locks. SQLite's other files get the same mode. If this fails, SQLite reports the error.
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
                                            std::span<const std::string> values) {
  sqlite3_stmt* raw = nullptr;
  const int code =
      sqlite3_prepare_v2(db_.get(), sql.data(), static_cast<int>(sql.size()), &raw, nullptr);
  const Statement statement(raw);
  if (code != SQLITE_OK) return Error();
  for (size_t i = 0; i < values.size(); ++i) {
    const int bound = sqlite3_bind_text64(raw, static_cast<int>(i) + 1, values[i].data(),
                                          values[i].size(), SQLITE_STATIC, SQLITE_UTF8);
    if (bound != SQLITE_OK) return Error();
  }
  std::vector<SqlRow> rows;
  int step = sqlite3_step(raw);
  for (; step == SQLITE_ROW; step = sqlite3_step(raw)) {
    SqlRow row;
    for (int c = 0; c < sqlite3_column_count(raw); ++c) row.push_back(ColumnText(raw, c));
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
  // From linux/magic.h and the file systems' own headers: NFS, SMB, CIFS, SMB2, FUSE, Ceph, Lustre,
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
  if (!s.ok()) return WithAdvice(path, s);
  return journal;
}

Status SqliteJournal::Check(const std::string& path) {
  std::error_code ignored;  // an unreadable file shows when it is opened
  if (!std::filesystem::exists(path, ignored)) return NotFound(path + " is missing");
  PANDO_ASSIGN_OR_RETURN(SqliteDb db, SqliteDb::OpenToRead(path));
  if (const Status s = QuickCheck(db); !s.ok()) return WithAdvice(path, s);
  const auto rows = db.Query("SELECT 1 FROM meta LIMIT 1");
  return rows.ok() && !rows->empty() ? Status() : NotFound(path + " is empty");
}

Status SqliteJournal::SetUp(Locking locking) {
  Status s =
      db_.Execute(fmt::format("PRAGMA busy_timeout = {}; PRAGMA locking_mode = {};", kBusyTimeoutMs,
                              locking == Locking::kExclusive ? "EXCLUSIVE" : "NORMAL"));
  if (!s.ok()) return s;
  PANDO_ASSIGN_OR_RETURN(std::vector<SqlRow> version, db_.Query("PRAGMA user_version"));
  const std::string ours = std::to_string(kSchemaVersion);
  const std::string& schema = version[0][0];
  if (schema != "0" && schema != ours)
    return OtherSchema(db_.path(), "tables", schema, kSchemaVersion);
  PANDO_RETURN_IF_ERROR(QuickCheck(db_));
  s = db_.Execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;");
  if (!s.ok() || schema == ours) return s;  // a full disk must not keep us from opening the file
  return db_.Execute("BEGIN IMMEDIATE;" + JournalSchema() + "PRAGMA user_version = " + ours +
                     "; COMMIT;");
}

// ---- reading ------------------------------------------------------------------------------------

Result<std::optional<SchedulerState>> SqliteJournal::ReadState() {
  std::optional<SchedulerState> state;
  const Status s = Transact([&] { return TakeLead(&state); });
  has_taken_lead_ = s.ok() && state.has_value();
  if (!s.ok()) return WithAdvice(db_.path(), s);
  return state;
}

Status SqliteJournal::TakeLead(std::optional<SchedulerState>* state) {
  PANDO_ASSIGN_OR_RETURN(std::vector<SqlRow> found,
                         db_.Query("SELECT section, key, value FROM journal"));
  if (found.empty()) return Status();
  JournalRows rows;
  for (SqlRow& row : found) rows.try_emplace({row[0], row[1]}, std::move(row[2]));
  if (!rows.contains({"state", ""})) return Corrupt("section state is missing");
  PANDO_RETURN_IF_ERROR(ReadRows(rows, &state->emplace()));
  return Insert(LeaderRow());
}

JournalRow SqliteJournal::LeaderRow() const {
  return {{"leader", ""}, fmt::format(R"({{"leader":"{}"}})", HexText(leader_))};
}

// ---- writing ------------------------------------------------------------------------------------

Status SqliteJournal::Commit(const SchedulerState& state) {
  if (is_fenced()) return fence_;
  const Status s = Transact([&] { return Write(state); });
  if (s.ok()) written_ = state;
  return s;
}

Status SqliteJournal::Transact(const std::function<Status()>& change) {
  Status s = db_.Execute("BEGIN IMMEDIATE");
  if (s.ok()) s = change();
  if (s.ok()) s = db_.Execute("COMMIT");
  if (!s.ok()) (void)db_.Execute("ROLLBACK");  // the transaction may not have begun
  return s;
}

Status SqliteJournal::Write(const SchedulerState& state) {
  PANDO_RETURN_IF_ERROR(CheckLeader(state.term));
  static const SchedulerState kNothing;
  const SchedulerState& before = written_ ? *written_ : kNothing;
  if (!written_) {
    PANDO_RETURN_IF_ERROR(db_.Execute("DELETE FROM journal WHERE section != 'views'"));
    PANDO_RETURN_IF_ERROR(Insert(LeaderRow()));
  }
  const auto [changed, removed] = MakeChange(before, state);
  for (const auto& [section, key] : removed) {
    PANDO_RETURN_IF_ERROR(
        db_.Query("DELETE FROM journal WHERE section = ? AND key = ?", SqlRow{section, key})
            .status());
  }
  for (const JournalRow& row : changed) PANDO_RETURN_IF_ERROR(Insert(row));
  // A view never changes and its row is large, so its row is made only once.
  if (state.view.id == before.view.id) return Status();
  PANDO_RETURN_IF_ERROR(Insert(MakeRow(state.view)));
  return db_.Execute(
      fmt::format("DELETE FROM journal WHERE section = 'views' AND key NOT IN (SELECT key FROM "
                  "journal WHERE section = 'views' ORDER BY key DESC LIMIT {})",
                  kViewsKept));
}

Status SqliteJournal::Insert(const JournalRow& row) {
  const SqlRow values{row.first.section, row.first.key, row.second};
  return db_.Query("INSERT OR REPLACE INTO journal VALUES (?, ?, ?)", values).status();
}

Status SqliteJournal::CheckLeader(uint64_t term) {
  PANDO_ASSIGN_OR_RETURN(std::vector<SqlRow> rows, db_.Query("SELECT key, value FROM meta"));
  std::map<std::string, std::string> meta;
  for (const SqlRow& row : rows) meta.emplace(row[0], row[1]);
  const uint64_t led = ParseNumber<uint64_t>(meta["term"]).value_or(0);
  const bool is_led_by_us = meta["leader"] == HexText(leader_);
  const bool is_other = led > term || (!is_led_by_us && (led == term || has_taken_lead_));
  if (rows.empty() || !is_other) return Status();
  fence_ = FencedBy(db_.path(), led, term);
  return fence_;
}

}  // namespace pando
