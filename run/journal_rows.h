// The scheduler's state as rows, and back. Both journals store these rows: run/sqlite_journal in a
// file, run/etcd/etcd_journal in etcd.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/journal.h"

namespace pando {

inline constexpr int kJournalSchemaVersion = 12;  // of the rows' JSON
inline constexpr int kJournalViewsKept = 64;      // older views may go

struct JournalKey {
  std::string section;
  std::string key;  // sorts like the records
  auto operator<=>(const JournalKey&) const = default;
};
using JournalRows = std::map<JournalKey, std::string>;  // values: JSON in UTF-8
using JournalRow = JournalRows::value_type;

// The rows that a commit writes: those of the records that differ, and that of the state itself.
// The leader's row is not part of the state; MakeRow makes a view's.
struct JournalChange {
  JournalRows changed;
  std::vector<JournalKey> removed;
};
JournalChange MakeChange(const SchedulerState& before, const SchedulerState& after);
JournalRow MakeRow(const View& view);

// Adds the rows to the state, in which the last view counts. Errors name section, key and field.
Status ReadRows(const JournalRows& rows, SchedulerState* state);

}  // namespace pando
