// RunStatus is the scheduler's answer to a question about its run. The scheduler fills it
// (status_json.cc) and sends it as JSON, which `pando status --json` prints. `pando status`, `pando
// top`, `pando doctor`, the viewer and the run's other processes read it.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "proto/named_fields.h"
#include "scheduler/journal.h"
#include "scheduler/scheduler_place.h"

namespace pando {

// ByTransport has one value per transport that carries payloads between processes. `group` stands
// for gloo or NCCL in an allreduce group.
template <class T>
struct ByTransport {
  std::optional<T> tcp, ipc, shm, group;
};

// The JSON leaves out unknown values. Names and hosts are as the processes sent them.
struct RunStatus {
  using Lines = ByTransport<uint32_t>;                   // connections to lanes
  using Traffic = ByTransport<std::array<uint64_t, 2>>;  // bytes sent, received

  // Why the run makes no step (scheduler/stall_watch.h).
  struct Stall {
    std::string waiter;      // "worker 0"
    std::string waited_for;  // "server 1"
    std::string what;        // "parameters of step 12"
    uint64_t since_ms = 0;
    std::string text;
    std::string log_line;  // the last line of the log of `waited_for`
  };
  struct Node {
    std::string name;  // "worker 1"
    std::string role;
    uint32_t rank = 0;
    std::string host;
    uint32_t pid = 0;
    std::string health = "ready";  // or "starting", "draining", "leaving", "suspect"
    bool draining = false;
    std::string activity = "unknown";
    uint64_t step = 0;
    uint64_t silent_ms = 0;  // since its last message
    // A server's replicas and where it listens.
    std::optional<uint32_t> primaries, backups, syncing;
    std::optional<std::vector<std::string>> endpoints;
    // A worker's share of the work, its speed and its waits (Heartbeat).
    std::optional<uint64_t> micro_batches, micro_batch_us, data_stall_us, exposed_sync_us;
    std::optional<uint64_t> gpu_memory_bytes;
    std::optional<uint32_t> gpu_percent;
    std::optional<Lines> lines;
    std::optional<Traffic> traffic;
    std::optional<std::string> waiting_for;
    std::optional<uint64_t> waiting_ms;
  };
  struct Verification {  // micro-batches (P41)
    uint64_t agreed = 0;
    uint64_t unverified = 0;
  };
  struct Evaluation {  // the newest
    Version version;
    std::string evaluated_on = "test";
    double accuracy = NAN;  // not a number if there is none
    double top5_accuracy = NAN;
    std::string text;
  };
  struct Snapshot {
    uint32_t generation = 0;
    Version version;
  };

  std::string phase;
  std::optional<std::string> waiting_for;
  std::optional<Stall> stall;
  std::optional<uint64_t> clock_us;  // the steady clock of the scheduler's machine
  uint64_t step = 0;                 // steps completed
  uint64_t step_count = 0;
  uint64_t term = 0;
  uint64_t view = 0;
  uint32_t generation = 0;
  std::string model;
  std::string dataset;
  std::optional<std::vector<SchedulerPlace>> schedulers;  // none: the run has one
  std::vector<Node> nodes;
  std::optional<Verification> verification;
  std::optional<Evaluation> evaluation;
  std::vector<Snapshot> snapshots;  // the kept ones, ascending
  std::vector<FaultRecord> faults;  // the newest, ascending
  uint64_t fault_count = 0;         // all
};

template <class T>
void Visit(auto io, ByTransport<T>& m) {
  io(PANDO_OPTIONAL(m.tcp), PANDO_OPTIONAL(m.ipc), PANDO_OPTIONAL(m.shm), PANDO_OPTIONAL(m.group));
}
void Visit(auto io, RunStatus::Stall& m) {
  io(PANDO_FIELD(m.waiter), PANDO_FIELD(m.waited_for), PANDO_FIELD(m.what), PANDO_FIELD(m.since_ms),
     PANDO_FIELD(m.text), PANDO_FIELD(m.log_line));
}
void Visit(auto io, RunStatus::Node& m) {
  io(PANDO_FIELD(m.name), PANDO_FIELD(m.role), PANDO_FIELD(m.rank), PANDO_FIELD(m.host),
     PANDO_FIELD(m.pid), PANDO_FIELD(m.health), PANDO_FIELD(m.draining), PANDO_FIELD(m.activity),
     PANDO_FIELD(m.step), PANDO_FIELD(m.silent_ms), PANDO_OPTIONAL(m.primaries),
     PANDO_OPTIONAL(m.backups), PANDO_OPTIONAL(m.syncing), PANDO_OPTIONAL(m.endpoints),
     PANDO_OPTIONAL(m.micro_batches), PANDO_OPTIONAL(m.micro_batch_us),
     PANDO_OPTIONAL(m.data_stall_us), PANDO_OPTIONAL(m.exposed_sync_us),
     PANDO_OPTIONAL(m.gpu_memory_bytes), PANDO_OPTIONAL(m.gpu_percent), PANDO_OPTIONAL(m.lines),
     PANDO_OPTIONAL(m.traffic), PANDO_OPTIONAL(m.waiting_for), PANDO_OPTIONAL(m.waiting_ms));
}
void Visit(auto io, RunStatus::Verification& m) {
  io(PANDO_FIELD(m.agreed), PANDO_FIELD(m.unverified));
}
void Visit(auto io, RunStatus::Evaluation& m) {
  io(PANDO_FIELD(m.version), PANDO_FIELD(m.evaluated_on), PANDO_FIELD(m.accuracy),
     PANDO_FIELD(m.top5_accuracy), PANDO_FIELD(m.text));
}
void Visit(auto io, RunStatus::Snapshot& m) {
  io(PANDO_FIELD(m.generation), PANDO_FIELD(m.version));
}
void Visit(auto io, RunStatus& m) {
  io(PANDO_FIELD(m.phase), PANDO_OPTIONAL(m.waiting_for), PANDO_OPTIONAL(m.stall),
     PANDO_OPTIONAL(m.clock_us), PANDO_FIELD(m.step), PANDO_FIELD(m.step_count),
     PANDO_FIELD(m.term), PANDO_FIELD(m.view), PANDO_FIELD(m.generation), PANDO_FIELD(m.model),
     PANDO_FIELD(m.dataset), PANDO_OPTIONAL(m.schedulers), PANDO_FIELD(m.nodes),
     PANDO_OPTIONAL(m.verification), PANDO_OPTIONAL(m.evaluation), PANDO_FIELD(m.snapshots),
     PANDO_FIELD(m.faults), PANDO_FIELD(m.fault_count));
}

// Returns one line of JSON.
std::string StatusText(const RunStatus& status);
// Parses a status, which may be of another release and lack members or have others.  Returns an
// error if a member has another type, or if the text is no status.
Result<RunStatus> ParseStatus(std::string_view json);

}  // namespace pando
