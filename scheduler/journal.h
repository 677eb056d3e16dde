// Journal keeps the state that the scheduler must not lose. The scheduler writes the state before
// it announces it (P25) and reads it when it starts again (P26). run/sqlite_journal keeps the state
// in a file, the simulator on a virtual disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "proto/messages.h"
#include "proto/named_fields.h"
#include "proto/ownership.h"
#include "scheduler/evaluation/evaluation.h"

namespace pando {

// MemberRecord is a process that the scheduler has welcomed and that is not known to be dead.
struct MemberRecord {
  PeerId peer;  // lane 0
  Register registration;
  uint32_t rank = 0;
  bool is_ready = false;
  Ready ready;
  bool is_draining = false;
  bool operator==(const MemberRecord&) const = default;
};

// SnapshotManifest names the files of a complete snapshot (P29), one StoredShard per shard.
struct StoredShard {
  uint64_t hash = 0;
  std::string file;  // within the snapshot folder
  bool operator==(const StoredShard&) const = default;
};
struct SnapshotManifest {
  SnapshotRef snapshot;
  std::vector<StoredShard> shards;
  bool operator==(const SnapshotManifest&) const = default;
};

// GivenUpSnapshots names the versions that get no snapshot in this generation, even if reported.
struct GivenUpSnapshots {
  Version below;                  // all versions below this one
  std::vector<Version> versions;  // and these, ascending
};

// The journal and the summary hold at most this many faults and drop the oldest first.
inline constexpr size_t kFaultRecordsMax = 4096;
// FaultRecord is a fault of a process and how long the run took to recover from it. Times are in ms
// since the job began; a time below 0 is not known (yet). Its JSON is the same in the status,
// events.jsonl, summary.json and on the viewer's page.
struct FaultRecord {
  uint64_t id = 0;          // 1, 2, ... in the order of the faults
  std::string action;       // "kill", "stop", "partition", "exit", "silence", "rollback", ...
  std::string target;       // "worker 1"
  std::string host;         // the target's; with process_id it matches supervisors' notes
  uint32_t process_id = 0;  // the target's
  Step step;                // the lowest incomplete one at the injection, or when noticed
  double injected_ms = -1;
  double detected_ms = -1;
  std::string detected_by;  // "exit", "socket", "lease", "message"; empty while undetected
  double recovered_ms = -1;
  bool operator==(const FaultRecord&) const = default;
};
void Visit(auto io, FaultRecord& m) {
  io(PANDO_FIELD(m.id), PANDO_FIELD(m.action), PANDO_FIELD(m.target), PANDO_FIELD(m.host),
     PANDO_FIELD(m.process_id), PANDO_FIELD(m.step),
     NamedField{"injected_ms", NullBelowZero{m.injected_ms}},
     NamedField{"detected_ms", NullBelowZero{m.detected_ms}},
     NamedField{"detected_by", NullIfEmpty{m.detected_by}},
     NamedField{"recovered_ms", NullBelowZero{m.recovered_ms}});
}

// P41. Opinion is the hash of a worker's gradient of a micro-batch. Dispute has two that differ.
struct Opinion {
  NodeId worker;
  std::string name;         // "worker 1 (process 123 on host)", for after it has left
  uint64_t probe_hash = 0;  // the worker's kind (P40): only equal kinds are compared
  uint64_t hash = 0;
};
struct Dispute {
  uint32_t generation = 0;  // the one that found it; the next one decides it
  Step step;
  MicroBatch micro_batch;
  Opinion first;
  Opinion second;
};
struct VerificationState {
  Step settled_below;
  // These count the micro-batches that the job verifies, again in each generation that computes
  // them. Those that were reported only to an earlier life of the scheduler may be missing.
  uint64_t agreed_count = 0;      // computed twice, with equal gradients
  uint64_t unverified_count = 0;  // not computed twice, or not reported in time
  std::optional<Dispute> open_dispute;
};

struct SchedulerState {
  JobId job;
  uint64_t term = 0;
  uint32_t next_node = 1;
  View view;  // the newest; it has the run's generation
  ShardHolders holders;
  std::vector<MemberRecord> members;
  std::vector<SnapshotManifest> snapshots;  // the kept ones, ascending
  GivenUpSnapshots given_up;
  std::vector<EvaluationSummary> evaluations;
  std::vector<FaultRecord> faults;
  VerificationState verification;
  std::vector<std::string> distrusted_machines;  // a server there was outvoted (P8)
  bool is_completed = false;                     // P33: the final weights are kept
};

class Journal {
 public:
  virtual ~Journal() = default;
  // Writes the state.  Returns ok once it is durable. Otherwise the caller must leave and send
  // nothing: another scheduler leads the run (P26), or the journal was not writable for too long.
  virtual Status Commit(const SchedulerState& state) = 0;
};

}  // namespace pando
