// Members are the processes that the scheduler has welcomed and that are not known to be dead.
// RunMembers alone changes them; the other parts of the scheduler core read them.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/outbox.h"
#include "scheduler/journal.h"
#include "scheduler/placement/placement.h"

namespace pando {

struct Member : MemberRecord {
  explicit Member(MemberRecord record) : MemberRecord(std::move(record)) {}

  bool is_leaving = false;        // it has no work left, and has to stop
  Heartbeat heartbeat;            // the last one
  std::set<uint16_t> left_lanes;  // the lanes that have said Bye

  Role role() const { return registration.role; }
  bool has_left() const { return left_lanes.size() == Peers().size(); }
  // Whether views and placements name it.
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

class Members {
 public:
  std::map<NodeId, Member>& all() { return members_; }
  const std::map<NodeId, Member>& all() const { return members_; }
  Member* Find(NodeId node);
  const Member* Find(NodeId node) const;
  const Member* Find(Incarnation incarnation) const;
  const Member* FindProcess(Role role, const ProcessName& process) const;
  const Member* FindNamed(const std::string& name) const;  // "worker 1" or "worker-1"
  // The sender of a message, which is a member.
  Member& Sender(const PeerId& from) { return *Find(Find(from.incarnation)->peer.node); }
  const Member& Sender(const PeerId& from) const { return *Find(from.incarnation); }
  Member& Add(Member member);
  void Remove(NodeId node) { members_.erase(node); }
  // `wanted`, or the lowest free rank if that is taken or not a rank.
  uint32_t FreeRank(Role role, uint32_t wanted) const;
  std::vector<MemberRecord> Records() const;
  // The members that take part: workers by rank, others by node. `avoided` ones get no new work.
  std::vector<NodeInfo> NodeInfos() const;
  std::vector<const Member*> TakingPart(Role role) const;
  size_t CountReady(Role role) const { return TakingPart(role).size(); }
  std::vector<const Member*> Workers() const;
  std::vector<PlacementServer> Servers(const std::set<NodeId>& avoided) const;

 private:
  template <class Predicate>
  const Member* FindIf(Predicate is_it) const;

  std::map<NodeId, Member> members_;
};

// Whether the workers are an allreduce group, which no process joins or leaves while it trains.
inline bool IsGroup(const JobPlan& plan) { return plan.job.strategy == Strategy::kAllreduce; }

// LaneAcks keeps the newest value that each lane has acknowledged: a view, a version. Used by
// the parts that repeat a message until it is acknowledged.
template <class T>
class LaneAcks {
 public:
  void OnAck(const PeerId& lane, const T& value) {
    T& acked = acked_[{lane.incarnation, lane.lane}];
    acked = std::max(acked, value);
  }
  // T() if the lane has acknowledged nothing.
  T Newest(const PeerId& lane) const {
    const auto it = acked_.find({lane.incarnation, lane.lane});
    return it == acked_.end() ? T() : it->second;
  }
  void Forget(Incarnation process) {
    std::erase_if(acked_, [&](const auto& entry) { return entry.first.first == process; });
  }
  void Clear() { acked_.clear(); }

 private:
  std::map<std::pair<Incarnation, uint16_t>, T> acked_;
};

}  // namespace pando
