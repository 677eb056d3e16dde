#include <fmt/core.h>

#include "files/json_fields.h"
#include "proto/codec_fields.h"
#include "run/sqlite_journal.h"
#include "scheduler/journal_fields.h"

namespace pando {
namespace {

// Makes a key whose order as a text is that of the numbers.
template <class... Numbers>
std::string KeyText(Numbers... numbers) {
  return Joined(std::vector<std::string>{fmt::format("{:020}", numbers)...});
}

// Calls section(name, records, key function) for each section that is a list.
void ForEachList(auto& state, auto&& section) {
  section("members", state.members,
          [](const MemberRecord& m) { return KeyText(m.peer.node.value()); });
  section("snapshots", state.snapshots, [](const SnapshotManifest& m) {
    return KeyText(m.snapshot.generation, m.snapshot.version.value());
  });
  section("evaluations", state.evaluations,
          [](const EvaluationSummary& e) { return KeyText(e.version.value()); });
  section("faults", state.faults, [](const FaultRecord& f) { return KeyText(f.id); });
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

JournalRows MakeRows(const SchedulerState& state) {
  JournalRows rows{{{"state", ""}, JsonText(state)}};
  ForEachList(state, [&](const char* section, const auto& records, auto key_for) {
    for (const auto& record : records)
      rows.try_emplace({section, key_for(record)}, JsonText(record));
  });
  return rows;
}

JournalRow MakeRow(const View& view) {
  return {{"views", KeyText(view.id.term, view.id.number)}, JsonText(view)};
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
