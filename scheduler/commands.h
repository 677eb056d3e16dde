// Commands executes what people command (`pando drain`, `snapshot`, `stop`) and drains members that
// are asked to leave (P33). Part of the scheduler core. Threads: none.
#pragma once

#include <map>
#include <set>
#include <string>

#include "scheduler/evaluations.h"
#include "scheduler/snapshot_requests.h"

namespace pando {

class Commands {
 public:
  // All outlive this.
  Commands(RunFacts& run, EvaluationRounds& evaluations, SnapshotRequests& requests,
           LastSnapshot& last_snapshot)
      : run_(run), evaluations_(evaluations), requests_(requests), last_snapshot_(last_snapshot) {}

  void OnCommand(Micros now, const PeerId& from, const Command& command);
  // A signal asked the sender to leave.
  void OnLeave(Micros now, const PeerId& from);
  // Lets the drained members leave that no view names any more.
  void StopDrained(Micros now);
  // Concludes the commands for a snapshot once it is stored, or cannot be.
  void ConcludeSnapshots(Micros now);
  void Forget(const Member& member);

 private:
  struct Pending {
    Command command;
    CommandReply reply;
    Incarnation drained;  // kDrain
    std::string warning;  // of a drain that leaves the run without workers
  };
  void Execute(Micros now, Pending& pending);
  void ExecuteSnapshot(Micros now, Pending& pending);
  void ExecuteDrain(Micros now, Pending& pending);
  void Conclude(Pending& pending, CommandOutcome outcome, std::string text);
  bool IsLast(const Member& member) const;  // of its role, of those that stay
  std::string ReasonNotToDrain(const Member& member) const;
  void Drain(Micros now, const Member& member);

  RunFacts& run_;
  EvaluationRounds& evaluations_;
  SnapshotRequests& requests_;
  LastSnapshot& last_snapshot_;
  std::map<Incarnation, Pending> pending_;  // by client
  std::set<NodeId> refused_;                // members that know why they cannot leave
};

}  // namespace pando
