// RunMembers welcomes the processes of the run and gives up the dead ones. It alone changes
// Members, which is another part. It owns the members' leases and ids.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "common/ids.h"
#include "scheduler/members/fault_ledger.h"
#include "scheduler/members/leases.h"
#include "scheduler/members/members.h"
#include "scheduler/members/node_ids.h"
#include "scheduler/members/worker_use.h"
#include "scheduler/run_progress.h"
#include "scheduler/scheduler_options.h"
#include "scheduler/scheduler_part.h"

namespace pando {

// MembershipObserver drops what other parts keep about a member. Scheduler implements it.
class MembershipObserver {
 public:
  virtual ~MembershipObserver() = default;
  // Is called before the member is removed.
  virtual void OnForget(const Member& member) = 0;
};

class RunMembers : SchedulerPart {
 public:
  RunMembers(const SchedulerOptions& options, const SchedulerPart& part, FaultLedger& faults,
             const RunProgress& progress, Members& members, MembershipObserver& observer);
  RunMembers(const RunMembers&) = delete;

  // Begins the leases at the first call, which knows the time.  Returns whether it is the first.
  bool Begin(Micros now);
  // Renews the sender's lease.  Returns null if the sender is not a member, or not in a role that
  // may send this; if it was a member, it gets Refused.
  const Member* OnHeard(Micros now, const Envelope& envelope);
  // Welcomes or refuses the process.  Returns the member, if it is a new one.
  const Member* OnRegister(Micros now, const PeerId& from, const Register& registration);
  // Returns true if the member is ready now and was not before.
  bool OnReady(Micros now, const PeerId& from, const Ready& ready);
  void OnHeartbeat(const PeerId& from, const Heartbeat& heartbeat);
  void OnBye(const PeerId& from);
  // Handles the end of a connection: the process is dead unless it sends a message soon. If
  // `nonsense` is not empty, it describes bytes of the process that are no message; it is given up
  // at once.
  void OnDisconnect(Micros now, Incarnation incarnation, const std::string& nonsense);
  // Gives up the members whose leases are over.
  void Tick(Micros now);
  Micros NextDeadline() const { return leases_.NextDeadline(); }

  // Removes a dead member and requests a view. `action` and `detected_by` are those of its
  // FaultRecord. `cause` says how it ended, "signal 9 (SIGKILL)"; if it is empty, `action` does.
  void OnDeath(Micros now, NodeId node, const std::string& action, const std::string& detected_by,
               const std::string& cause = "");
  // Removes the member. Its incarnation is never welcomed again.
  void Forget(NodeId node);
  // Marks the member as draining: others take its work over.
  void MarkDraining(NodeId node);
  // Marks the member as leaving: it has no work left, and has to stop.
  void MarkLeaving(NodeId node) { members_.MarkLeaving(node); }
  // Tells a lane of a leaving member to stop.  Returns false if it has said Bye, or is not leaving.
  bool RepeatDrained(const Member& member, const PeerId& lane);
  // Repeats to every lane that has not said Bye how the run ends.
  void RepeatStop();

  const Members& members() const { return members_; }
  const Leases& leases() const { return leases_; }
  const WorkerUse& use() const { return use_; }
  // Returns whether each member of the scheduler's earlier lives has sent a message or was given up
  // (P26).
  bool HasHeardAll() const { return unheard_.empty(); }
  // Where the search for the next process's id begins; kept in the journal.
  uint32_t next_node() const { return ids_.next(); }
  // "2 of 3 workers, 1 of 2 servers": what kGathering waits for.
  std::string MissingText() const;

 private:
  // Why the process cannot join, for people; empty if it can.
  std::string ReasonToRefuse(const Register& registration) const;
  std::string ReasonNotInGroup(const Register& registration) const;
  const Member& FindOrAdd(Micros now, const PeerId& from, const Register& registration);
  bool ReadsSameData(Micros now, const PeerId& from, const Member& member, const Ready& ready);
  void CompareKinds(Micros now, const Member& newcomer);
  Micros LeaseFor(NodeId node) const;
  void EndGroup(Micros now, const Member& lost, const std::string& action);
  void RefuseGivenUp(const PeerId& to);

  const SchedulerOptions& options_;
  FaultLedger& faults_;
  const RunProgress& progress_;
  Members& members_;
  MembershipObserver& observer_;
  const Welcome welcome_;  // the same for all, except the node and its rank
  Leases leases_;
  WorkerUse use_;
  NodeIds ids_;
  bool has_begun_ = false;
  std::set<Incarnation> unheard_;  // members of earlier lives that have not reported yet
};

}  // namespace pando
