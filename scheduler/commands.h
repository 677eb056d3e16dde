// Commands executes what people command (`pando drain`, `snapshot`, `stop`) and drains members that
// are asked to leave (P33). Part of the scheduler core. Threads: none.
#pragma once

#include <map>
#include <set>
#include <string>

#include "scheduler/evaluations.h"
#include "scheduler/members/membership.h"
#include "scheduler/rollback.h"
#include "scheduler/snapshot_requests.h"

namespace pando {

class Commands {
 public:
  struct Parts {  // all outlive this
    RunMembers& membership;
    ViewLedger& views;
    RunPhase& phase;
    const Rollback& rollback;
    const RunProgress& progress;
    EvaluationRounds& evaluations;
    Snapshots& snapshots;
    JournaledOutbox& outbox;
  };
  Commands(const JobPlan& plan, const Parts& parts)
      : plan_(plan),
        parts_(parts),
        requests_(plan, parts.progress, parts.snapshots, parts.outbox) {}

  void OnCommand(Micros now, const PeerId& from, const Command& command);
  // A signal asked the sender to leave.
  void OnLeave(Micros now, const PeerId& from);
  // Lets the drained members leave that no view names any more.
  void StopDrained(Micros now);
  // Concludes the commands for a snapshot once it is stored, or cannot be.
  void ConcludeSnapshots(Micros now);
  void Forget(const Member& member);

  SnapshotRequests& requests() { return requests_; }

 private:
  struct Pending {
    Command command;
    CommandOutcome outcome = CommandOutcome::kAccepted;
    std::string text;
    Incarnation drained;  // kDrain
  };
  void Execute(Micros now, Pending& pending);
  void ExecuteSnapshot(Micros now, Pending& pending);
  void ExecuteDrain(Micros now, Pending& pending);
  void Conclude(Pending& pending, CommandOutcome outcome, std::string text);
  std::string ReasonNotToDrain(const Member& member) const;
  void Drain(Micros now, const Member& member);

  const JobPlan& plan_;
  const Parts parts_;
  SnapshotRequests requests_;
  std::map<Incarnation, Pending> pending_;  // by client
  std::set<NodeId> refused_;                // members that know why they cannot leave
};

}  // namespace pando
