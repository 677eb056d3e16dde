// The scheduler's state as rows of SqliteJournal's tables, and back. Numbers above 63 bits are
// written as 16 hex digits, lists as JSON.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "run/sqlite_db.h"
#include "scheduler/journal.h"

namespace pando {

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

}  // namespace pando
