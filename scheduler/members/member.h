// Members: the processes that the scheduler has welcomed and that are not known to be dead.
// RunMembers alone changes them; the other parts of the scheduler core read them. Threads: none.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/outbox.h"
#include "scheduler/journal.h"
#include "scheduler/placement/placement.h"

namespace pando {

struct Member {
  PeerId peer;  // lane 0
  Register registration;
  uint32_t rank = 0;
  bool is_ready = false;
  Ready ready;
  bool is_draining = false;       // others take its work over
  bool is_leaving = false;        // it has no work left, and has to stop
  Heartbeat heartbeat;            // the last
  std::set<uint16_t> left_lanes;  // said Bye

  Role role() const { return registration.role; }
  bool has_left() const { return left_lanes.size() == Peers().size(); }
  // Whether views and placements name it.
  bool takes_part() const { return is_ready && !is_leaving; }
  std::string Name() const;           // "worker 1"
  std::string Where() const;          // "process 123 on host"
  std::vector<PeerId> Peers() const;  // a server's lanes, or the worker
  NodeInfo Info() const;
  MemberRecord Record() const;
  static Member From(const MemberRecord& record);
};

class Members {
 public:
  std::map<NodeId, Member>& all() { return members_; }
  const std::map<NodeId, Member>& all() const { return members_; }
  Member* Find(NodeId node);
  const Member* Find(NodeId node) const;
  const Member* Find(Incarnation incarnation) const;
  const Member* FindProcess(Role role, const std::string& host, uint32_t process_id) const;
  const Member* FindNamed(const std::string& name) const;  // "worker 1" or "worker-1"
  Member& Add(Member member);
  void Remove(NodeId node) { members_.erase(node); }
  // `wanted`, or the lowest free rank if that is taken or not a rank.
  uint32_t FreeRank(Role role, uint32_t wanted) const;
  uint32_t CountReady(Role role) const;
  std::vector<MemberRecord> Records() const;
  // Those that take part. Workers by rank, servers by node; `avoided` ones get no new work.
  std::vector<const Member*> Workers() const;
  std::vector<PlacementServer> Servers(const std::set<NodeId>& avoided) const;

 private:
  std::map<NodeId, Member> members_;
};

}  // namespace pando
