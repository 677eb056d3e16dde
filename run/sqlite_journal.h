// SqliteJournal keeps the scheduler's state in RUN_DIR/scheduler.db (P25, P26) with a write-ahead
// log, and flushes every commit to the disk before it returns. It serves the scheduler process.
// People read it with `sqlite3 RUN_DIR/scheduler.db 'select * from faults'` (docs/run-folder.md).
//
// One table, "journal", has a row per record: its section, its key within it, and the record as
// JSON (scheduler/journal_fields.h).
//
//   leader       the life of the scheduler that leads
//   state        all that has no record below: job, term, next_node, is_finished and so on
//   views        the newest kViewsKept, the last one in force
//   members      the processes that were members at the last write
//   snapshots    complete ones
//   evaluations, faults
//
// All but the first two also have SQL views with a column per field, defined by rows of "meta".
//
// Threads: none. Invariant: of two schedulers on one file, only one can commit: the one that read
// it last, the one with the higher term, or the first to write it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "run/journal_rows.h"
#include "run/stored_journal.h"

struct sqlite3;

namespace pando {

// ---- SQLite's C interface with an owner and values ----------------------------------------------

using SqlRow = std::vector<std::string>;  // numbers in decimal digits; NULL is empty

// SqliteDb is an open SQLite file. Threads: none. Errors name the file and SQLite's reason.
class SqliteDb {
 public:
  // Opens or creates the file; OpenToRead opens it for reading and changes nothing.
  static Result<SqliteDb> Open(std::string path);
  static Result<SqliteDb> OpenToRead(std::string path);

  const std::string& path() const { return path_; }
  // Executes one or more statements without results.
  Status Execute(const std::string& sql);
  // Executes one statement, with `values` bound to its ?s in order. Returns all rows.
  Result<std::vector<SqlRow>> Query(const std::string& sql,
                                    std::span<const std::string> values = {});

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

std::string JournalSchema();  // creates the table and the SQL views that are missing

// ---- the journal --------------------------------------------------------------------------------

class SqliteJournal : public StoredJournal {
 public:
  static constexpr int kSchemaVersion = kJournalSchemaVersion;
  static constexpr int kViewsKept = kJournalViewsKept;
  static constexpr int kBusyTimeoutMs = 5000;  // to wait for another process, such as sqlite3

  // Processes share a file's write-ahead log in memory, which a network file system cannot offer.
  // There one process has the file to itself while it is open.
  enum class Locking : uint8_t { kShared, kExclusive };
  static Locking LockingFor(const std::string& path);

  // Opens or creates the file. `leader` is the incarnation of this life of the scheduler.
  static Result<SqliteJournal> Open(const std::string& path, uint64_t leader) {
    return Open(path, leader, LockingFor(path));
  }
  static Result<SqliteJournal> Open(const std::string& path, uint64_t leader, Locking locking);

  // Checks that a run can continue from the file, and changes nothing. kNotFound: nothing was ever
  // committed to the file, or it does not exist. kCorrupt: it is damaged.
  static Status Check(const std::string& path);

  Result<std::optional<SchedulerState>> ReadState() override;
  // Writes the rows of the records that differ from the last commit.
  Status Commit(const SchedulerState& state) override;
  bool is_fenced() const override { return !fence_.ok(); }
  std::string place() const override { return "the disk of " + db_.path(); }

 private:
  SqliteJournal(SqliteDb db, uint64_t leader) : db_(std::move(db)), leader_(leader) {}
  Status SetUp(Locking locking);
  // Makes the whole change, or none of it; the file is locked meanwhile.
  Status Transact(const std::function<Status()>& change);
  Status TakeLead(std::optional<SchedulerState>* state);
  Status CheckLeader(uint64_t term);
  Status Write(const SchedulerState& state);
  Status Insert(const JournalRow& row);
  JournalRow LeaderRow() const;

  SqliteDb db_;
  uint64_t leader_;
  std::optional<SchedulerState> written_;  // in the last commit of this life
  Status fence_;
  bool has_taken_lead_ = false;
};

}  // namespace pando
