// Journal: what the scheduler must not forget, written before it is announced (P25), and what it is
// told of it when it starts again (P26). scheduler/sqlite_journal keeps it in a file; the simulator
// on a virtual disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "proto/messages.h"
#include "scheduler/evaluation.h"

namespace pando {

// A process that the scheduler has welcomed, living as far as it knows.
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

// Versions that will have no snapshot in the view's generation, whatever servers still say.
struct GivenUpSnapshots {
  Version below;                  // all below
  std::vector<Version> versions;  // ascending, and these
};

// Something that befell a process, and how long the run took to get over it. Times in ms since the
// job began; < 0: not (yet).
struct FaultRecord {
  uint64_t id = 0;
  std::string action;       // "kill", "stop", "partition", "exit", "silence", "rollback", ...
  std::string target;       // "worker 1"
  std::string host;         // of the target, with
  uint32_t process_id = 0;  // its process: what a supervisor's note is matched by
  Step step;                // the lowest incomplete one when it was injected, or noticed
  double injected_ms = -1;
  double detected_ms = -1;
  std::string detected_by;  // "exit", "socket", "lease"; empty while undetected
  double recovered_ms = -1;
};

// P41. What a worker made of a micro-batch, and two that made different things of one.
struct Opinion {
  NodeId worker;
  std::string name;         // "worker 1 (process 123 on host)": known when it has left, too
  uint64_t probe_hash = 0;  // its kind (P40): only equal kinds are compared
  uint64_t hash = 0;
};
struct Dispute {
  uint32_t generation = 0;  // in which it was found; the next one tells who was right
  Step step;
  MicroBatch micro_batch;
  Opinion first;
  Opinion second;
};
struct VerificationState {
  Step settled_below;
  // Micro-batches that were to be computed twice, counted each time that they are made. Those of
  // which only a dead life of the scheduler heard may be missing.
  uint64_t agreed_count = 0;      // and were, alike
  uint64_t unverified_count = 0;  // and were not, or nobody heard of it in time
  std::optional<Dispute> open_dispute;
};

struct SchedulerState {
  JobId job;
  uint64_t term = 0;
  uint32_t next_node = 1;
  View view;  // the newest; its generation is the job's
  std::vector<MemberRecord> members;
  std::vector<SnapshotManifest> snapshots;  // ascending, those kept
  GivenUpSnapshots given_up;
  std::vector<EvaluationSummary> evaluations;
  std::vector<FaultRecord> faults;
  VerificationState verification;
  std::vector<BadPicture> bad_pictures;  // by name
  bool is_finished = false;  // P33
};

class Journal {
 public:
  virtual ~Journal() = default;
  // Durable when it is ok. Otherwise the caller must leave without another word: another scheduler
  // leads the run (P26), or the journal cannot be written and nobody waits for it any longer.
  virtual Status Commit(const SchedulerState& state) = 0;
};

}  // namespace pando
