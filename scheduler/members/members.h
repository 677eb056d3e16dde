// Members are the processes that the scheduler has welcomed and that are not known to be dead.
// RunMembers alone changes them; the other parts of the scheduler core read them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "scheduler/members/member.h"
#include "scheduler/placement/placement.h"

namespace pando {

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

}  // namespace pando
