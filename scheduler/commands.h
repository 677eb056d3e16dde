// Commands executes the commands of people (`pando drain`, `snapshot`, `stop`) and drains the
// members that ask to leave (P33).
#pragma once

#include <map>
#include <set>
#include <string>

#include "scheduler/evaluation/evaluation_rounds.h"
#include "scheduler/last_snapshot.h"

namespace pando {

class Commands : SchedulerPart {
 public:
  Commands(const SchedulerPart& part, const RunProgress& progress, RunMembers& membership,
           EvaluationRounds& evaluations, SnapshotRequests& requests, LastSnapshot& last_snapshot)
      : SchedulerPart(part),
        progress_(progress),
        membership_(membership),
        evaluations_(evaluations),
        requests_(requests),
        last_snapshot_(last_snapshot) {}

  void OnCommand(Micros now, const PeerId& from, const Command& command);
  // Drains the sender, which a signal has asked to leave.
  void OnLeave(Micros now, const PeerId& from);
  // Stops each drained member that has no work left.
  void StopDrained(Micros now);
  // Concludes the commands for a snapshot once it is stored or cannot be stored.
  void ConcludeSnapshots(Micros now);
  void Forget(const Member& member);

 private:
  struct Pending {
    Command command;
    CommandReply reply;
    Incarnation drained;  // for kDrain: the drained member
    std::string warning;  // set if a drain leaves the run without workers
  };
  void Execute(Micros now, Pending& pending);
  void ExecuteSnapshot(Micros now, Pending& pending);
  void ExecuteDrain(Micros now, Pending& pending);
  void Conclude(Pending& pending, CommandOutcome outcome, std::string text);
  // Returns whether all other members of its role are draining.
  bool IsLast(const Member& member) const;
  std::string ReasonNotToDrain(const Member& member) const;
  void Drain(Micros now, const Member& member);

  const RunProgress& progress_;
  RunMembers& membership_;
  EvaluationRounds& evaluations_;
  SnapshotRequests& requests_;
  LastSnapshot& last_snapshot_;
  std::map<Incarnation, Pending> pending_;  // each client's command
  std::set<NodeId> refused_;                // members whose wish to leave was refused
};

}  // namespace pando
