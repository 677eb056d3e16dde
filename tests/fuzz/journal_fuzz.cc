// Rows of the scheduler's journal. An input has one row per line: the section, a tab, the key, a
// tab, and the record as JSON.
#include <algorithm>
#include <numeric>

#include "common/check.h"
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

JournalRows RowsIn(std::string_view input) {
  JournalRows rows;
  while (!input.empty()) {
    std::string_view line = TakeUpTo('\n', &input);
    const std::string section(TakeUpTo('\t', &line));
    const std::string key(TakeUpTo('\t', &line));
    rows.insert_or_assign({section, key}, std::string(line));
  }
  return rows;
}

JournalRows RowsFor(const SchedulerState& state) {
  JournalRows rows = MakeChange({}, state).changed;
  rows.insert(MakeRow(state.view));
  return rows;
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
  std::vector<std::string> seeds;
  for (const auto& [key, value] : RowsFor(SeedState()))
    seeds.push_back(key.section + '\t' + key.key + '\t' + value + '\n');
  seeds.push_back(std::accumulate(seeds.begin(), seeds.end(), std::string()));
  return seeds;
}

}  // namespace pando

// A state that can be read can be written, and reads back as the same state.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  SchedulerState state;
  if (Status s = ReadRows(RowsIn(TextIn(data, size)), &state); !s.ok()) {
    PANDO_CHECK(!s.message().empty());
    return 0;
  }
  const JournalRows rows = RowsFor(state);
  SchedulerState again;
  PANDO_CHECK(ReadRows(rows, &again).ok());
  PANDO_CHECK(RowsFor(again) == rows);
  return 0;
}
