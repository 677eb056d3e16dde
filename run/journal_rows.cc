#include "run/journal_rows.h"

#include <fmt/core.h>

#include <array>
#include <type_traits>

#include "files/json_fields.h"
#include "proto/codec_fields.h"
#include "run/sqlite_journal.h"
#include "scheduler/journal_fields.h"

namespace pando {
namespace {

// Makes a key whose order as a text is that of the numbers.
template <size_t kCount>
std::string KeyText(const std::array<uint64_t, kCount>& numbers) {
  std::vector<std::string> texts;
  for (const uint64_t number : numbers) texts.push_back(fmt::format("{:020}", number));
  return Joined(texts);
}

// Calls section(name, records, function that returns a record's key) for each section that is a
// list.
void ForEachList(auto& state, auto&& section) {
  section("members", state.members,
          [](const MemberRecord& m) { return std::array<uint64_t, 1>{m.peer.node.value()}; });
  section("snapshots", state.snapshots, [](const SnapshotManifest& m) {
    return std::array<uint64_t, 2>{m.snapshot.generation, m.snapshot.version.value()};
  });
  section("evaluations", state.evaluations,
          [](const EvaluationSummary& e) { return std::array<uint64_t, 1>{e.version.value()}; });
  section("faults", state.faults,
          [](const FaultRecord& f) { return std::array<uint64_t, 1>{f.id}; });
}

Status ReadRow(const std::string& section, const std::string& value, SchedulerState* state) {
  if (section == "leader") return Status();
  if (section == "state") return ReadJson(value, state);
  if (section == "views") {  // in the order of their numbers, so that the newest one stays
    PANDO_RETURN_IF_ERROR(ReadJson(value, &state->view));
    state->holders.Add(state->view);
    return Status();
  }
  Status status = Corrupt("the section is unknown");
  ForEachList(*state, [&](const char* name, auto& records, auto) {
    if (section == name) status = ReadJson(value, &records.emplace_back());
  });
  return status;
}

// Makes an SQL view for people, with a column for each field.
template <class Record>
std::string ViewStatement(const std::string& section, Record record) {
  std::vector<std::string> columns;
  const auto add = [&](const auto&... fields) {
    (columns.push_back(fmt::format("json_extract(value, '$.{0}') AS {0}", fields.name)), ...);
  };
  Visit(add, record);
  return fmt::format(
      "CREATE VIEW IF NOT EXISTS {0} AS SELECT {1} FROM journal WHERE section = '{0}';", section,
      Joined(columns));
}

}  // namespace

std::string JournalSchema() {
  std::string sql =
      "CREATE TABLE IF NOT EXISTS journal (section TEXT, key TEXT, value TEXT, "
      "PRIMARY KEY (section, key)) WITHOUT ROWID;"
      "CREATE VIEW IF NOT EXISTS meta AS SELECT field.key, field.value "
      "FROM journal, json_each(journal.value) AS field WHERE section IN ('leader', 'state');";
  SchedulerState state;
  ForEachList(state, [&]<class Record>(const char* name, const std::vector<Record>&, auto) {
    sql += ViewStatement(name, Record());
  });
  return sql + ViewStatement("views", View());
}

JournalChange MakeChange(const SchedulerState& before, const SchedulerState& after) {
  JournalChange change{.changed = {{{"state", ""}, JsonText(after)}}, .removed = {}};
  ForEachList(after, [&]<class Record>(const char* section, const std::vector<Record>& records,
                                       auto key_for) {
    std::map<decltype(key_for(Record())), const Record*> old;
    ForEachList(before, [&]<class Other>(const char*, const std::vector<Other>& others, auto) {
      if constexpr (std::is_same_v<Other, Record>) {
        for (const Record& record : others) old.emplace_hint(old.end(), key_for(record), &record);
      }
    });
    for (const Record& record : records) {
      const auto node = old.extract(key_for(record));
      if (node.empty() || *node.mapped() != record)
        change.changed.try_emplace({section, KeyText(key_for(record))}, JsonText(record));
    }
    for (const auto& [key, record] : old) change.removed.push_back({section, KeyText(key)});
  });
  return change;
}

JournalRow MakeRow(const View& view) {
  return {{"views", KeyText(std::array{view.id.term, view.id.number})}, JsonText(view)};
}

Status ReadRows(const JournalRows& rows, SchedulerState* state) {
  for (const auto& [key, value] : rows) {
    Status s = ReadRow(key.section, value, state);
    if (!s.ok())
      return Corrupt(fmt::format("section {}, key '{}': {}", key.section, key.key, s.message()));
  }
  return Status();
}

}  // namespace pando
