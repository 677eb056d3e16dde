// Journal keeps the state that the scheduler must not lose. The state is written before it is
// announced (P25), and read when the scheduler starts again (P26). run/sqlite_journal keeps it in a
// file, the simulator on a virtual disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "proto/messages.h"
#include "proto/named_fields.h"
#include "proto/ownership.h"
#include "scheduler/evaluation.h"

namespace pando {

// A process that the scheduler has welcomed and that is not known to be dead.
struct MemberRecord {
  PeerId peer;  // lane 0
  Register registration;
  uint32_t rank = 0;
  bool is_ready = false;
  Ready ready;
  bool is_draining = false;
};

// A complete snapshot (P29), by shard.
struct StoredShard {
  uint64_t hash = 0;
  std::string file;  // within the snapshot folder
};
struct SnapshotManifest {
  SnapshotRef snapshot;
  std::vector<StoredShard> shards;
};

// The versions that will have no snapshot in the view's generation, even if servers report some.
struct GivenUpSnapshots {
  Version below;                  // all versions below this one
  std::vector<Version> versions;  // and these, ascending
};

// The journal and the summary hold at most these; the oldest go first.
inline constexpr size_t kFaultRecordsMax = 4096;
// A fault of a process, and how long the run took to recover from it. Times are in ms since the job
// began; a time below 0 is not known (yet). Its JSON is the same in the status, events.jsonl,
// summary.json and on the page.
struct FaultRecord {
  uint64_t id = 0;          // 1, 2, ... in the order of the faults
  std::string action;       // "kill", "stop", "partition", "exit", "silence", "rollback", ...
  std::string target;       // "worker 1"
  std::string host;         // the target's; a supervisor's note is matched by host and id
  uint32_t process_id = 0;  // the target's
  Step step;                // the lowest incomplete one when it was injected, or noticed
  double injected_ms = -1;
  double detected_ms = -1;
  std::string detected_by;  // "exit", "socket", "lease"; empty while undetected
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

// P41. A worker's gradient of a micro-batch, and two different ones of one micro-batch.
struct Opinion {
  NodeId worker;
  std::string name;         // "worker 1 (process 123 on host)": also after it has left
  uint64_t probe_hash = 0;  // its kind (P40): only equal kinds are compared
  uint64_t hash = 0;
};
struct Dispute {
  uint32_t generation = 0;  // in which it was found; the next one shows which worker was right
  Step step;
  MicroBatch micro_batch;
  Opinion first;
  Opinion second;
};
struct VerificationState {
  Step settled_below;
  // Micro-batches to be computed twice, counted each time that they are computed. Those that were
  // reported only to a dead life of the scheduler may be missing.
  uint64_t agreed_count = 0;      // computed twice, with equal gradients
  uint64_t unverified_count = 0;  // not computed twice, or not reported in time
  std::optional<Dispute> open_dispute;
};

struct SchedulerState {
  JobId job;
  uint64_t term = 0;
  uint32_t next_node = 1;
  View view;  // the newest; its generation is the job's
  ShardHolders holders;
  std::vector<MemberRecord> members;
  std::vector<SnapshotManifest> snapshots;  // ascending; those that are kept
  GivenUpSnapshots given_up;
  std::vector<EvaluationSummary> evaluations;
  std::vector<FaultRecord> faults;
  VerificationState verification;
  bool is_finished = false;  // P33
};

class Journal {
 public:
  virtual ~Journal() = default;
  // The state is durable if the result is ok. Otherwise the caller must leave and send nothing
  // more: another scheduler leads the run (P26), or the journal cannot be written for too long.
  virtual Status Commit(const SchedulerState& state) = 0;
};

}  // namespace pando
