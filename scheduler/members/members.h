// Members are the processes that the scheduler has welcomed and that are not known to be dead.
// RunMembers alone changes them; the other parts of the scheduler core read them.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scheduler/members/member.h"
#include "scheduler/placement/placement.h"

namespace pando {

class Members {
 public:
  Members() = default;
  Members(const Members&) = delete;

  const std::map<NodeId, Member>& all() const { return members_; }
  Member* Find(NodeId node);
  const Member* Find(NodeId node) const;
  const Member* Find(Incarnation incarnation) const;
  const Member* FindProcess(Role role, const ProcessName& process) const;
  const Member* FindNamed(const std::string& name) const;  // "worker 1" or "worker-1"
  // The sender of a message, which is a member.
  Member& Sender(const PeerId& from) { return *by_incarnation_.at(from.incarnation); }
  const Member& Sender(const PeerId& from) const { return *Find(from.incarnation); }
  Member& Add(Member member);
  void Remove(NodeId node);
  void MarkReady(Member& member, const Ready& ready);
  void MarkDraining(NodeId node);
  void MarkLeaving(NodeId node);
  // `wanted`, or the lowest free rank if that is taken or not a rank.
  uint32_t FreeRank(Role role, uint32_t wanted) const;
  std::vector<MemberRecord> Records() const;
  // Returns the members that take part, by id, for the view after `last`. Racks are named if they
  // sum (P6a): with kAuto, if more than kHostsWithoutRackSums hosts have a worker, and none has
  // two, and from then on.
  std::vector<NodeInfo> NodeInfos(SumUse rack_sum, const View& last) const;
  // Return the members that take part, by id. The lists are valid until a member comes, goes or is
  // marked.
  const std::vector<const Member*>& TakingPart(Role role) const;
  size_t CountReady(Role role) const { return TakingPart(role).size(); }
  const std::vector<const Member*>& Workers() const;  // those that take part, by rank
  // Returns the members that have to leave and still have work, by id.
  const std::vector<const Member*>& Draining() const { return lists().draining; }
  // Returns the servers that take part, by id. `avoided` ones get no new replicas. If all are
  // draining, they count as staying.
  std::vector<PlacementServer> Servers(const std::set<NodeId>& avoided) const;

 private:
  template <class Predicate>
  const Member* FindIf(Predicate is_it) const;

  struct Lists {
    std::vector<const Member*> servers, workers, workers_by_rank, draining;
  };
  const Lists& lists() const;

  std::map<NodeId, Member> members_;
  std::map<Incarnation, Member*> by_incarnation_;
  mutable std::optional<Lists> lists_;  // none: to be made again
};

}  // namespace pando
