// Rows of the scheduler's journal. An input has one row per line: the table and, each behind a tab,
// its columns. "i5" is a whole number, "r0.5" a number, "tabc" a text, and "n" is NULL. Columns
// that are missing are NULL.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "common/check.h"
#include "common/text.h"
#include "run/sqlite_journal.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_file.h"

namespace pando {
namespace {

// Cuts the text up to the mark off it.
std::string_view TakeUpTo(char mark, std::string_view* text) {
  const std::string_view part = text->substr(0, text->find(mark));
  text->remove_prefix(std::min(part.size() + 1, text->size()));
  return part;
}

SqlValue ValueIn(std::string_view field) {
  if (field.empty()) return std::monostate();
  const std::string_view rest = field.substr(1);
  switch (field[0]) {
    case 'i':
      return ParseNumber<int64_t>(rest).value_or(0);
    case 'r': {
      const double real = std::strtod(std::string(rest).c_str(), nullptr);
      return std::isnan(real) ? SqlValue() : real;
    }
    case 't':
      return std::string(rest);
    default:
      return std::monostate();
  }
}

std::string FieldFor(const SqlValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return "i" + std::to_string(*whole);
  // SQLite stores NULL for what is not a number.
  if (const auto* real = std::get_if<double>(&value); real != nullptr && !std::isnan(*real))
    return fmt::format("r{:a}", *real);
  if (const auto* text = std::get_if<std::string>(&value)) return "t" + *text;
  return "n";
}

std::string LineFor(const std::string& table, const SqlRow& row) {
  std::string line = table;
  for (const SqlValue& value : row) line += '\t' + FieldFor(value);
  return line + '\n';
}

Status ReadInput(std::string_view input, SchedulerState* state) {
  while (!input.empty()) {
    std::string_view line = TakeUpTo('\n', &input);
    const std::string_view name = TakeUpTo('\t', &line);
    const auto tables = JournalTables();
    const auto table =
        std::ranges::find_if(tables, [&](const JournalTable& each) { return each.name == name; });
    if (table == tables.end()) continue;
    SqlRow row;
    while (row.size() < table->columns.size()) row.push_back(ValueIn(TakeUpTo('\t', &line)));
    PANDO_RETURN_IF_ERROR(ReadRows(table->name, std::span(&row, 1), state));
  }
  return Status();
}

// By table.
std::map<std::string, std::vector<SqlRow>> RowsFor(const SchedulerState& state) {
  auto rows = MakeRows(state);
  rows["views"] = {MakeRow(state.view)};
  return rows;
}

std::vector<std::string> LinesFor(const std::map<std::string, std::vector<SqlRow>>& rows) {
  std::vector<std::string> lines;
  for (const auto& [table, of_table] : rows) {
    for (const SqlRow& row : of_table) lines.push_back(LineFor(table, row));
  }
  return lines;
}

SchedulerState SeedState() {
  const PeerId server{NodeId(1), Incarnation(0xf1), 0};
  SchedulerState state{.job = JobId(7), .term = 3, .next_node = 10};
  state.view = {.id = {3, 42}, .generation = 2, .restore = {1, Version(500)}};
  state.view.nodes = {{.node = NodeId(1), .role = Role::kServer, .host = "a"}};
  state.view.shards = {{.primary = server, .in_sync_backups = {server}}};
  state.view.owners = {{NodeId(9), Step(7), NodeId(8)}};
  state.members.push_back({.peer = server, .registration = {.role = Role::kServer, .host = "a"}});
  state.snapshots = {{{1, Version(500)}, {{7, "g001-v000000500-a-0.safetensors"}}}};
  state.given_up = {.below = Version(100), .versions = {Version(200)}};
  state.evaluations = {{Version(938), 4, 3, 0.25, 4, {{1, 1}, {3, 2}}, {1, 0, 9, 2}, {0.5}}};
  state.verification.open_dispute = Dispute{1, Step(70), MicroBatch(3), {NodeId(8), "w", 9, 1}, {}};
  state.faults = {{.id = 1, .action = "kill", .target = "worker 1", .injected_ms = 0}};
  return state;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds = LinesFor(RowsFor(SeedState()));
  seeds.push_back(std::accumulate(seeds.begin(), seeds.end(), std::string()));
  return seeds;
}

}  // namespace pando

// What can be read can be written, and reads back as the same state.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  SchedulerState state;
  if (Status s = ReadInput(TextIn(data, size), &state); !s.ok()) {
    PANDO_CHECK(!s.message().empty());
    return 0;
  }
  const auto rows = RowsFor(state);
  SchedulerState again;
  for (const auto& [table, of_table] : rows) PANDO_CHECK(ReadRows(table, of_table, &again).ok());
  PANDO_CHECK(LinesFor(RowsFor(again)) == LinesFor(rows));
  return 0;
}
