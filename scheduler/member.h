// Members: the processes that the scheduler core has welcomed and not given up. Used by the
// scheduler core alone.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proto/outbox.h"
#include "scheduler/assignment.h"
#include "scheduler/journal.h"
#include "scheduler/placement.h"

namespace pando {

const char* RoleName(Role role);

struct Member {
  PeerId peer;  // lane 0
  Register registration;
  uint32_t rank = 0;
  bool is_ready = false;
  Ready ready;
  bool is_draining = false;  // others take its work over
  bool is_leaving = false;   // nothing is left to it: told to stop
  bool was_refused_leave = false;
  Micros heard_at{0};
  std::optional<Micros> suspected_at;   // its connection broke, and it has not been heard since
  std::optional<Micros> avoided_until;  // a peer does not hear it (P23): no new work
  std::optional<Micros> idle_since;     // no micro-batch is its own
  Heartbeat heartbeat;
  SpeedMeter speed;
  std::map<uint16_t, ViewId> acked_views;       // by lane
  std::map<uint16_t, Version> released_pins;    // by lane, servers
  std::map<uint16_t, Version> snapshots_asked;  // by lane, servers: acknowledged
  std::set<uint16_t> left_lanes;                // said Bye

  Role role() const { return registration.role; }
  bool has_left() const { return left_lanes.size() == Peers().size(); }
  // In views and placements.
  bool takes_part() const { return is_ready && !is_leaving; }
  std::string Name() const;           // "worker 1"
  std::string Where() const;          // "process 123 on host"
  std::vector<PeerId> Peers() const;  // every lane, or the worker
  NodeInfo Info() const;
  MemberRecord Record() const;
  static Member From(const MemberRecord& record);
};

class Members {
 public:
  std::map<NodeId, Member>& all() { return members_; }
  const std::map<NodeId, Member>& all() const { return members_; }
  Member* Find(Incarnation incarnation);
  Member* Find(NodeId node);
  const Member* Find(NodeId node) const;
  Member* FindProcess(Role role, const std::string& host, uint32_t process_id);
  Member* FindNamed(const std::string& name);  // "worker 1" or "worker-1"
  Member& Add(Member member);
  void Remove(NodeId node) { members_.erase(node); }
  // `wanted`, or where that is taken or no rank, the lowest free one.
  uint32_t FreeRank(Role role, uint32_t wanted) const;
  uint32_t CountReady(Role role) const;
  // Of those that take part: workers by rank, servers by node.
  std::vector<const Member*> Workers() const;
  std::vector<PlacementServer> Servers(Micros now) const;

 private:
  std::map<NodeId, Member> members_;
};

}  // namespace pando
