// States of the scheduler for the tests of its journals.
#pragma once

#include "run/journal_rows.h"

namespace pando {

inline constexpr uint64_t kLeader = 0xfedcba9876543210;

inline PeerId Server(uint32_t node, uint16_t lane = 0) {
  return {NodeId(node), Incarnation(0xf000000000000000 + node), lane};
}

inline View SmallView(uint64_t number) {
  View view{.id = {3, number}, .generation = 2, .restore = {1, Version(500)}};
  view.nodes = {{.node = NodeId(1),
                 .incarnation = Server(1).incarnation,
                 .role = Role::kServer,
                 .rank = 0,
                 .host = "caf\xc3\xa9",
                 .lane_endpoints = {"tcp://127.0.0.1:1", "ipc:///tmp/\"x\""}},
                {.node = NodeId(9), .role = Role::kWorker, .rank = 4, .host = "b"}};
  view.shards = {{.primary = Server(1, 1),
                  .in_sync_backups = {Server(2)},
                  .syncing_backups = {{Server(3, 7), {3, 41}}}},
                 {}};
  view.owners = {{NodeId(9), Step(7), NodeId(8)}, {kUnknownNode, Step(0)}};
  return view;
}

inline SchedulerState SmallState() {
  SchedulerState state{.job = JobId(UINT64_MAX), .term = 3, .next_node = 10, .view = SmallView(42)};
  state.members.push_back(
      {.peer = Server(1),
       .registration = {.role = Role::kServer,
                        .host = "a",
                        .process_id = UINT32_MAX,
                        .lane_endpoints = {"tcp://127.0.0.1:1"}},
       .rank = 2,
       .is_ready = true,
       .ready = {.kind = "cpu", .probe_hash = UINT64_MAX, .data_fingerprint = 1},
       .is_draining = true});
  state.members.push_back({.peer = {NodeId(9), Incarnation(1), 0}});
  state.snapshots = {
      {{1, Version(500)}, {{UINT64_MAX, "g001-v000000500-a-0.safetensors"}, {0, ""}}},
      {{2, Version(1000)}, {}}};
  state.given_up = {.below = Version(100), .versions = {Version(200), Version(600)}};
  state.evaluations = {{Version(469), 10000, 9850, 1.0 / 3},
                       {Version(938), 4, 3, 0.25, 4, {{1, 1}, {3, 2}}, {1, 0, UINT64_MAX, 2}}};
  state.verification = {
      .settled_below = Step(77),
      .agreed_count = 5,
      .unverified_count = 2,
      .open_dispute =
          Dispute{1, Step(70), MicroBatch(3), {NodeId(8), "worker 0", 9, UINT64_MAX}, {}}};
  state.faults = {{.id = 1,
                   .action = "kill",
                   .target = "worker 1",
                   .host = "a",
                   .process_id = 77,
                   .step = Step(100),
                   .injected_ms = 0,
                   .detected_ms = 1.5,
                   .detected_by = "exit",
                   .recovered_ms = 20.25},
                  {.id = 2, .action = "silence", .target = "server 0", .step = Step(7)}};
  return state;
}

// Rows are what a state comes to; they are compared here, not the code's structs.
inline JournalRows AllRows(const SchedulerState& state) {
  JournalRows rows = MakeChange({}, state).changed;
  rows.insert(MakeRow(state.view));
  return rows;
}

}  // namespace pando
