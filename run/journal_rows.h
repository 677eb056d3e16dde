// The scheduler's state as rows of SqliteJournal's tables, and back. Numbers above 63 bits are
// written as 16 hex digits, lists as JSON.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "run/sqlite_db.h"
#include "scheduler/journal.h"

namespace pando {

struct JournalTable {
  const char* name;
  std::vector<const char*> columns;
  size_t key_count;  // the first columns name the row
};
std::span<const JournalTable> JournalTables();

SqlRow RowOf(const View& view);
SqlRow RowOf(const MemberRecord& member);
SqlRow RowOf(const SnapshotManifest& manifest);
SqlRow RowOf(const EvaluationSummary& evaluation);
SqlRow RowOf(const FaultRecord& fault);
// Of "meta"; the leader is not part of the state.
std::vector<SqlRow> MetaRowsOf(const SchedulerState& state);

// Errors say column and value, not the table.
Status ReadRow(const SqlRow& row, View* view);
Status ReadRow(const SqlRow& row, MemberRecord* member);
Status ReadRow(const SqlRow& row, SnapshotManifest* manifest);
Status ReadRow(const SqlRow& row, EvaluationSummary* evaluation);
Status ReadRow(const SqlRow& row, FaultRecord* fault);
Status ReadMetaRow(const SqlRow& row, SchedulerState* state);

}  // namespace pando
