// A Member is a process that the scheduler has welcomed and that is not known to be dead.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/job_plan.h"
#include "proto/outbox.h"
#include "scheduler/journal.h"

namespace pando {

struct Member : MemberRecord {
  explicit Member(MemberRecord record) : MemberRecord(std::move(record)) {}

  bool is_leaving = false;        // it has no work left, and has to stop
  Heartbeat heartbeat;            // the last one
  uint32_t heartbeat_count = 0;   // since it joined, or since the scheduler's start
  std::set<uint16_t> left_lanes;  // the lanes that have said Bye

  Role role() const { return registration.role; }
  bool has_left() const { return left_lanes.size() == Peers().size(); }
  // Returns whether views and placements name the member.
  bool takes_part() const { return is_ready && !is_leaving; }
  std::string Name() const;           // "worker 1"
  std::string Where() const;          // "process 123 on host"
  std::string Description() const;    // "worker 1 (process 123 on host)"
  std::vector<PeerId> Peers() const;  // a server's lanes, or the worker
};

inline constexpr size_t kHostBytesMax = 253;  // the longest host name (RFC 1035)

// ProcessName tells one process from another, as a supervisor or the process itself reports it.
struct ProcessName {
  std::string host;
  uint32_t process_id = 0;  // 0: not known
  uint64_t key = 0;
  auto operator<=>(const ProcessName&) const = default;
};
// `report`: a Register or FaultNote.
ProcessName ProcessFor(const auto& report) {
  return {report.host, report.process_id, report.process_key};
}

// Returns the machine of a server: its label, or else its host.
inline const std::string& MachineFor(const Register& registration) {
  return registration.machine.empty() ? registration.host : registration.machine;
}

// Returns whether the workers are an allreduce group, which no process joins or leaves while it
// trains.
inline bool IsGroup(const JobPlan& plan) { return plan.job.strategy == Strategy::kAllreduce; }

}  // namespace pando
