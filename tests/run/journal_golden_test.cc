// The contents of the scheduler's journal as people read them with SQL. They were recorded with
// schema 8, which had a table for each kind of record, where members had their node in another
// column, too, and views were one column beside their term and number. Since a fault is the same
// JSON everywhere, `detected_by` is null and no empty text while it is not detected.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/text.h"
#include "run/sqlite_journal.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

using Json = nlohmann::json;

PeerId GoldenPeer(uint32_t node, uint16_t lane) {
  PeerId peer;
  peer.node = NodeId(node);
  peer.incarnation = Incarnation(0xf000000000000000 + node);
  peer.lane = lane;
  return peer;
}

SnapshotRef GoldenSnapshot(uint32_t generation, uint64_t version) {
  SnapshotRef snapshot;
  snapshot.generation = generation;
  snapshot.version = Version(version);
  return snapshot;
}

View GoldenView(uint64_t number) {
  View view;
  view.id.term = 3;
  view.id.number = number;
  view.generation = 2;
  view.restore = GoldenSnapshot(1, 500);
  NodeInfo& server = view.nodes.emplace_back();
  server.node = NodeId(1);
  server.incarnation = GoldenPeer(1, 0).incarnation;
  server.role = Role::kServer;
  server.rank = 4;
  server.host = "caf\xc3\xa9";
  server.lane_endpoints = {"tcp://127.0.0.1:1", "ipc:///tmp/\"x\""};
  server.probe_hash = UINT64_MAX;
  server.public_key = "key";
  ShardPlacement& placed = view.shards.emplace_back();
  placed.primary = GoldenPeer(1, 1);
  placed.in_sync_backups = {GoldenPeer(2, 0)};
  SyncingBackup& syncing = placed.syncing_backups.emplace_back();
  syncing.peer = GoldenPeer(3, 7);
  syncing.since.term = 3;
  syncing.since.number = 41;
  view.shards.emplace_back();
  MicroBatchOwner& owner = view.owners.emplace_back();
  owner.worker = NodeId(9);
  owner.first_step = Step(7);
  owner.previous = NodeId(8);
  view.owners.emplace_back().worker = kUnknownNode;
  return view;
}

MemberRecord GoldenMember() {
  MemberRecord member;
  member.peer = GoldenPeer(10, 0);
  member.rank = 2;
  member.is_ready = true;
  member.is_draining = true;
  Register& said = member.registration;
  said.role = Role::kServer;
  said.host = "a";
  said.process_id = UINT32_MAX;
  said.lane_endpoints = {"tcp://127.0.0.1:1"};
  said.wanted_rank = 5;
  said.process_key = UINT64_MAX;
  said.public_key = "key";
  said.machine = "b";
  said.rack = "c";
  member.ready.kind = "cpu, \"v3\"";
  member.ready.probe_hash = UINT64_MAX;
  member.ready.data_fingerprint = 1;
  return member;
}

FaultRecord GoldenFault() {
  FaultRecord fault;
  fault.id = 1;
  fault.action = "kill";
  fault.target = "worker 1";
  fault.host = "a";
  fault.process_id = 77;
  fault.step = Step(100);
  fault.injected_ms = 0;
  fault.detected_ms = 1.5;
  fault.detected_by = "exit";
  fault.recovered_ms = 20.25;
  return fault;
}

Dispute GoldenDispute() {
  Dispute dispute;
  dispute.generation = 1;
  dispute.step = Step(70);
  dispute.micro_batch = MicroBatch(3);
  dispute.first.worker = NodeId(8);
  dispute.first.name = "worker 0";
  dispute.first.probe_hash = 9;
  dispute.first.hash = UINT64_MAX;
  return dispute;
}

SchedulerState GoldenState() {
  SchedulerState state;
  state.job = JobId(UINT64_MAX - 1);
  state.term = 3;
  state.next_node = 11;
  state.view = GoldenView(42);
  // Rows are in the order of their numbers.
  state.members = {GoldenMember(), {}};
  state.members[1].peer = GoldenPeer(9, 0);
  SnapshotManifest complete;
  complete.snapshot = GoldenSnapshot(1, 500);
  complete.shards = {{UINT64_MAX, "g001-v000000500-a-0.safetensors"}, {0, ""}};
  state.snapshots = {complete, {}};
  state.snapshots[1].snapshot = GoldenSnapshot(1, 1000);
  state.given_up.below = Version(100);
  state.given_up.versions = {Version(200), Version(600)};
  EvaluationSummary last{.version = Version(938), .sample_count = 4, .correct_count = 3};
  last.loss_sum = 0.25;
  last.top5_count = 4;
  last.classes = {{1, 1}, {3, 2}};
  last.confusion = {1, 0, UINT64_MAX, 2};
  last.sums = {0.5, NAN, INFINITY};
  state.evaluations = {{.version = Version(469), .sample_count = 1, .loss_sum = NAN}, last};
  state.verification.settled_below = Step(77);
  state.verification.agreed_count = 5;
  state.verification.unverified_count = 2;
  state.verification.open_dispute = GoldenDispute();
  state.faults = {GoldenFault(), {.id = 2, .action = "silence", .target = "server 0"}};
  state.distrusted_machines = {"host1"};
  state.is_completed = true;
  return state;
}

// The value that json_quote() made of a column; a text may itself be an object or a list.
Json ColumnValue(const std::string& quoted) {
  const Json json = Json::parse(quoted);
  const bool is_text = json.is_string();
  const std::string text = is_text ? json.get<std::string>() : "";
  return text.starts_with('{') || text.starts_with('[') ? Json::parse(text) : json;
}

// A line for each value within each column.
std::string DumpTable(SqliteDb& db, const std::string& from,
                      const std::vector<std::string>& columns) {
  std::string dump;
  for (const std::string& column : columns) {
    const auto rows = db.Query("SELECT json_quote(" + column + ") FROM " + from);
    REQUIRE_MESSAGE(rows.ok(), rows.status().message());
    for (size_t r = 0; r < rows->size(); ++r) {
      const Json value = ColumnValue(rows->at(r)[0]);
      const Json leaves = value.is_structured() ? value.flatten() : Json{{"", value}};
      for (const auto& [place, leaf] : leaves.items())
        dump += fmt::format("{} {}{} {}\n", r, column, place, leaf.dump());
    }
  }
  return dump;
}

const char* const kMeta =
    R"(0 key "agreed_count"
1 key "distrusted_machines"
2 key "given_up"
3 key "is_finished"
4 key "job"
5 key "leader"
6 key "next_node"
7 key "open_dispute"
8 key "settled_below"
9 key "term"
10 key "unverified_count"
0 value 5
1 value/0 "host1"
2 value/below 100
2 value/versions/0 200
2 value/versions/1 600
3 value 1
4 value "fffffffffffffffe"
5 value "0000000000000abc"
6 value 11
7 value/first/hash 18446744073709551615
7 value/first/name "worker 0"
7 value/first/probe_hash 9
7 value/first/worker 8
7 value/generation 1
7 value/micro_batch 3
7 value/second/hash 0
7 value/second/name ""
7 value/second/probe_hash 0
7 value/second/worker 0
7 value/step 70
8 value 77
9 value 3
10 value 2
)";

const char* const kViews =
    R"(0 generation 2
0 id/number 42
0 id/term 3
0 nodes/0/host "café"
0 nodes/0/incarnation "f000000000000001"
0 nodes/0/lane_endpoints/0 "tcp://127.0.0.1:1"
0 nodes/0/lane_endpoints/1 "ipc:///tmp/\"x\""
0 nodes/0/node 1
0 nodes/0/probe_hash 18446744073709551615
0 nodes/0/public_key "key"
0 nodes/0/rack ""
0 nodes/0/rank 4
0 nodes/0/role "server"
0 owners/0/first_step 7
0 owners/0/previous 8
0 owners/0/worker 9
0 owners/1/first_step 0
0 owners/1/previous 4294967295
0 owners/1/worker 4294967295
0 restore/generation 1
0 restore/version 500
0 shards/0/in_sync_backups/0/incarnation "f000000000000002"
0 shards/0/in_sync_backups/0/lane 0
0 shards/0/in_sync_backups/0/node 2
0 shards/0/primary/incarnation "f000000000000001"
0 shards/0/primary/lane 1
0 shards/0/primary/node 1
0 shards/0/syncing_backups/0/peer/incarnation "f000000000000003"
0 shards/0/syncing_backups/0/peer/lane 7
0 shards/0/syncing_backups/0/peer/node 3
0 shards/0/syncing_backups/0/since/number 41
0 shards/0/syncing_backups/0/since/term 3
0 shards/1/in_sync_backups null
0 shards/1/primary/incarnation "0000000000000000"
0 shards/1/primary/lane 0
0 shards/1/primary/node 4294967295
0 shards/1/syncing_backups null
)";

const char* const kMembers =
    R"(0 peer/incarnation "f000000000000009"
0 peer/lane 0
0 peer/node 9
1 peer/incarnation "f00000000000000a"
1 peer/lane 0
1 peer/node 10
0 rank 0
1 rank 2
0 is_ready 0
1 is_ready 1
0 is_draining 0
1 is_draining 1
0 registration/host ""
0 registration/lane_endpoints null
0 registration/machine ""
0 registration/process_id 0
0 registration/process_key 0
0 registration/public_key ""
0 registration/rack ""
0 registration/role "worker"
0 registration/wanted_rank 4294967295
1 registration/host "a"
1 registration/lane_endpoints/0 "tcp://127.0.0.1:1"
1 registration/machine "b"
1 registration/process_id 4294967295
1 registration/process_key 18446744073709551615
1 registration/public_key "key"
1 registration/rack "c"
1 registration/role "server"
1 registration/wanted_rank 5
0 ready/data_fingerprint 0
0 ready/kind ""
0 ready/probe_hash 0
1 ready/data_fingerprint 1
1 ready/kind "cpu, \"v3\""
1 ready/probe_hash 18446744073709551615
)";

const char* const kSnapshots =
    R"(0 generation 1
1 generation 1
0 version 500
1 version 1000
0 shards/0/file "g001-v000000500-a-0.safetensors"
0 shards/0/hash 18446744073709551615
0 shards/1/file ""
0 shards/1/hash 0
1 shards null
)";

const char* const kEvaluations =
    R"(0 version 469
1 version 938
0 sample_count 1
1 sample_count 4
0 correct_count 0
1 correct_count 3
0 loss_sum null
1 loss_sum 0.25
0 top5_count 0
1 top5_count 4
0 classes null
1 classes/0/correct_count 1
1 classes/0/sample_count 1
1 classes/1/correct_count 2
1 classes/1/sample_count 3
0 confusion null
1 confusion/0 1
1 confusion/1 0
1 confusion/2 18446744073709551615
1 confusion/3 2
0 sums null
1 sums/0 0.5
1 sums/1 null
1 sums/2 null
)";

const char* const kFaults =
    R"(0 id 1
1 id 2
0 action "kill"
1 action "silence"
0 target "worker 1"
1 target "server 0"
0 host "a"
1 host ""
0 process_id 77
1 process_id 0
0 step 100
1 step 0
0 injected_ms 0.0
1 injected_ms null
0 detected_ms 1.5
1 detected_ms null
0 detected_by "exit"
1 detected_by null
0 recovered_ms 20.25
1 recovered_ms null
)";

TEST_CASE("the journal has the recorded values") {
  TempFolder temp;
  const std::string path = temp.path() + "/scheduler.db";
  REQUIRE(SqliteJournal::Open(path, 0xabc)->Commit(GoldenState()).ok());
  SqliteDb db = *SqliteDb::Open(path);
  CHECK(DumpTable(db, "meta ORDER BY key", {"key", "value"}) == kMeta);
  CHECK(DumpTable(db, "views", {"generation", "id", "nodes", "owners", "restore", "shards"}) ==
        kViews);
  CHECK(DumpTable(db, "members",
                  {"peer", "rank", "is_ready", "is_draining", "registration", "ready"}) ==
        kMembers);
  CHECK(DumpTable(db, "snapshots", {"generation", "version", "shards"}) == kSnapshots);
  CHECK(DumpTable(db, "evaluations",
                  {"version", "sample_count", "correct_count", "loss_sum", "top5_count", "classes",
                   "confusion", "sums"}) == kEvaluations);
  CHECK(DumpTable(db, "faults",
                  {"id", "action", "target", "host", "process_id", "step", "injected_ms",
                   "detected_ms", "detected_by", "recovered_ms"}) == kFaults);
}

}  // namespace
}  // namespace pando
