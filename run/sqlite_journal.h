// SqliteJournal keeps the scheduler's state in RUN_DIR/scheduler.db (P25, P26): WAL, every commit
// flushed to the disk before it returns. Made for the scheduler process; people read it with
// `sqlite3 RUN_DIR/scheduler.db 'select * from faults'`.
//
//   meta         key, value: job, term, leader, next_node, is_finished
//   views        term, number, and the view as JSON; the newest kViewsKept, the last one in force
//   members      the processes that were welcome when it was last written; messages as JSON
//   snapshots    complete ones: generation, version, shards as JSON
//   evaluations  by version
//   faults       by id; times in ms since the job began, NULL where unknown
//
// Threads: none. Invariant: of two schedulers on one file, only that which read it last, or that of
// the higher term, or the first to write it, can commit.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/status.h"
#include "scheduler/journal.h"

struct sqlite3;

namespace pando {

// ---- SQLite's C interface with an owner and values ----------------------------------------------

// NULL is monostate.
using SqlValue = std::variant<std::monostate, int64_t, double, std::string>;
using SqlRow = std::vector<SqlValue>;

// Threads: none. Errors name the file and what SQLite says.
class SqliteDb {
 public:
  // Opens or creates the file; or opens it to read it, and changes nothing.
  static Result<SqliteDb> Open(std::string path);
  static Result<SqliteDb> OpenToRead(std::string path);

  const std::string& path() const { return path_; }
  // One or more statements without results.
  Status Execute(const std::string& sql);
  // One statement; `values` are bound to its ?s in order. Returns all rows.
  Result<std::vector<SqlRow>> Query(const std::string& sql, std::span<const SqlValue> values = {});

 private:
  struct Close {
    void operator()(sqlite3* db) const;
  };
  explicit SqliteDb(std::string path) : path_(std::move(path)) {}
  static Result<SqliteDb> Open(std::string path, int flags);
  Status Error() const;

  std::string path_;
  std::unique_ptr<sqlite3, Close> db_;
};

std::string SqliteVersion();  // "3.40.1", for `pando doctor`

// ---- the scheduler's state as rows, and back (journal_rows.cc) ----------------------------------

// The job's id is 16 hex digits; objects and lists are JSON in UTF-8. There incarnations are hex
// digits, and hashes are integers of 64 bits, which SQLite's own functions round.
struct JournalTable {
  const char* name;
  std::vector<std::string> columns;
  size_t key_count;  // the first columns name the row
};
std::span<const JournalTable> JournalTables();  // "meta" first

// By table. The leader is not part of the state, and the view's row is made separately.
std::map<std::string, std::vector<SqlRow>> MakeRows(const SchedulerState& state);
SqlRow MakeRow(const View& view);

// Adds a table's rows to the state; of views the last one counts. Errors say table and column.
Status ReadRows(const std::string& table, std::span<const SqlRow> rows, SchedulerState* state);

// ---- the journal --------------------------------------------------------------------------------

class SqliteJournal : public Journal {
 public:
  static constexpr int kSchemaVersion = 8;
  static constexpr int kViewsKept = 64;
  static constexpr int kBusyTimeoutMs = 5000;  // of another process's transaction: people's sqlite3

  // Processes share a file's write-ahead log in memory, which a network file system does not have:
  // there one process has the file to itself as long as it is open.
  enum class Locking : uint8_t { kShared, kExclusive };
  static Locking LockingFor(const std::string& path);

  // Opens or creates the file. `leader` names this life of the scheduler: its incarnation.
  static Result<SqliteJournal> Open(const std::string& path, uint64_t leader) {
    return Open(path, leader, LockingFor(path));
  }
  static Result<SqliteJournal> Open(const std::string& path, uint64_t leader, Locking locking);

  // Whether a run can go on from the file; changes nothing. kNotFound: nothing was ever committed
  // to it, or there is none. kCorrupt: it is damaged.
  static Status Check(const std::string& path);

  // None if nothing was ever committed. Takes the lead: the previous leader cannot commit any
  // more, so nothing is added after the read.
  Result<std::optional<SchedulerState>> ReadState();

  // Writes only the rows that differ from the last commit's. What is not fenced may be tried again.
  Status Commit(const SchedulerState& state) override;
  bool is_fenced() const { return !fence_.ok(); }  // another scheduler leads

 private:
  using Rows = std::map<SqlRow, SqlRow>;       // by key: all columns
  using Tables = std::map<std::string, Rows>;  // every table

  SqliteJournal(SqliteDb db, uint64_t leader) : db_(std::move(db)), leader_(leader) {}
  Status SetUp(Locking locking);
  // All of the change or nothing, with the file locked meanwhile.
  Status Transact(const std::function<Status()>& change);
  Status TakeLead(std::optional<SchedulerState>* state);
  Status CheckLeader(uint64_t term);
  Status Write(uint64_t term, const Tables& tables);
  Status WriteChanges(const JournalTable& table, const Rows& rows);
  Tables KeyedRows(const SchedulerState& state) const;
  SqlRow LeaderRow() const;
  Result<std::vector<SqlRow>> ReadTable(const JournalTable& table);

  SqliteDb db_;
  uint64_t leader_;
  Tables written_;  // as of the last commit of this life
  Status fence_;
  bool has_taken_lead_ = false;
};

}  // namespace pando
