// RunMembers welcomes the processes of the run and gives up the dead ones. It owns the members,
// their leases and their ids. Part of the scheduler core. Threads: none.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plan/job_plan.h"
#include "scheduler/journaled_outbox.h"
#include "scheduler/ledgers/fault_ledger.h"
#include "scheduler/ledgers/view_ledger.h"
#include "scheduler/members/leases.h"
#include "scheduler/members/member.h"
#include "scheduler/members/worker_use.h"
#include "scheduler/run_phase.h"
#include "scheduler/run_progress.h"

namespace pando {

// Other parts keep data about each member. The scheduler's dispatcher implements it.
class MembershipObserver {
 public:
  virtual ~MembershipObserver() = default;
  virtual void OnWelcome(Micros now, const Member& member) = 0;
  // The member is removed after this call.
  virtual void OnForget(const Member& member) = 0;
};

class RunMembers {
 public:
  struct Options {
    std::string job_toml;
    std::string snapshot_dir;  // sent to every node
    bool is_fresh = false;     // a resumed run: the members of earlier lives are gone
  };
  struct Parts {  // all outlive the membership
    JournaledOutbox& outbox;
    RunPhase& phase;
    ViewLedger& views;
    FaultLedger& faults;
    const RunProgress& progress;
    MembershipObserver& observer;
  };
  // `state`: what the journal has, if there is one.
  RunMembers(Options options, const JobPlan& plan, const std::optional<SchedulerState>& state,
             const Parts& parts);
  RunMembers(const RunMembers&) = delete;

  // The first call that knows the time.  Returns false if it is not the first.
  bool Begin(Micros now);
  // Renews the sender's lease.  Returns null if the sender is not a member; if it was one, it
  // gets Refused.
  const Member* OnHeard(Micros now, const Envelope& envelope);
  void OnRegister(Micros now, const PeerId& from, const Register& registration);
  // Returns true if the member is ready now and was not before.
  bool OnReady(Micros now, const PeerId& from, const Ready& ready);
  void OnHeartbeat(const PeerId& from, const Heartbeat& heartbeat);
  void OnBye(const PeerId& from);
  // The connection of a process broke: it is dead unless a message of it comes soon.
  void OnDisconnect(Micros now, Incarnation incarnation);
  // Gives up the members whose leases are over.
  void Tick(Micros now);
  Micros NextDeadline() const { return leases_.NextDeadline(); }

  // The member is dead. `action` and `detected_by` are those of its FaultRecord.
  void OnDeath(Micros now, NodeId node, const std::string& action, const std::string& detected_by);
  // Removes the member. Its incarnation is never welcomed again.
  void Forget(NodeId node);
  // Others take the member's work over.
  void MarkDraining(NodeId node);
  // The member has no work left: it has to stop.
  void MarkLeaving(NodeId node) { members_.Find(node)->is_leaving = true; }
  // Repeats to a leaving member that it stops.  Returns false if this lane knows, or stays.
  bool RepeatDrained(const Member& member, const PeerId& lane);
  // Repeats to every lane that has not said Bye how the run ends.
  void RepeatStop();

  const Members& members() const { return members_; }
  const Leases& leases() const { return leases_; }
  const WorkerUse& use() const { return use_; }
  // Every member of the scheduler's earlier lives has sent a message or is given up (P26).
  bool HasHeardAll() const { return unheard_.empty(); }
  // The id that the next process gets; kept in the journal.
  uint32_t next_node() const { return next_node_; }
  // "2 of 3 workers, 1 of 2 servers": what kGathering waits for.
  std::string MissingText() const;

 private:
  const Member& FindOrAdd(Micros now, const PeerId& from, const Register& registration);
  bool ReadsSameData(Micros now, const PeerId& from, const Member& member, const Ready& ready);
  void CompareKinds(Micros now, const Member& newcomer);
  Micros LeaseFor(NodeId node) const;
  void EndGroup(Micros now, const Member& lost, const std::string& action);
  void RefuseGivenUp(const PeerId& to);
  bool IsGroup() const { return plan_.job.strategy == Strategy::kAllreduce; }

  const Options options_;
  const JobPlan& plan_;
  const Parts parts_;
  Members members_;
  Leases leases_;
  WorkerUse use_;
  uint32_t next_node_ = 1;
  bool has_begun_ = false;
  std::set<Incarnation> given_up_;
  std::set<Incarnation> unheard_;  // members of earlier lives that have not reported yet
};

}  // namespace pando
