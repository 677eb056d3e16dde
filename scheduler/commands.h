// Commands executes what people command (`pando drain`, `snapshot`, `stop`) and drains members that
// are asked to leave (P33). Part of the scheduler core. Threads: none.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "scheduler/evaluations.h"
#include "scheduler/snapshots.h"

namespace pando {

// SnapshotRequests asks all lanes to store one more version, as a person commands.
class SnapshotRequests {
 public:
  // Both outlive this.
  SnapshotRequests(RunFacts& run, Snapshots& snapshots) : run_(run), snapshots_(snapshots) {}

  // Asks for a version, unless one is asked for already.  Returns the version.
  Version Ask(Micros now);
  // What came of the request, once. If a shard has passed the version, a later one is asked for.
  std::optional<CommandReply> TakeResult(Micros now);

  void OnSnapshotAtAck(const PeerId& from, const SnapshotAtAck& ack) {
    acked_.OnAck(from, ack.version);
  }
  void RepeatTo(const PeerId& lane);
  // Lanes forget what they were asked for.
  void StartGeneration(Micros now);
  void Forget(const Member& member) { acked_.Forget(member.peer.incarnation); }

 private:
  struct Request {
    Version version;
    uint32_t attempts = 0;
    Micros patience_until{0};
  };
  void Ask(Micros now, uint32_t attempt);

  RunFacts& run_;
  Snapshots& snapshots_;
  std::optional<Request> request_;
  LaneAcks<Version> acked_;
};

class Commands {
 public:
  // All outlive this.
  Commands(RunFacts& run, EvaluationRounds& evaluations, Snapshots& snapshots)
      : run_(run), evaluations_(evaluations), snapshots_(snapshots), requests_(run, snapshots) {}

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
    CommandReply reply;
    Incarnation drained;  // kDrain
  };
  void Execute(Micros now, Pending& pending);
  void ExecuteSnapshot(Micros now, Pending& pending);
  void ExecuteDrain(Micros now, Pending& pending);
  void Conclude(Pending& pending, CommandOutcome outcome, std::string text);
  std::string ReasonNotToDrain(const Member& member) const;
  void Drain(Micros now, const Member& member);

  RunFacts& run_;
  EvaluationRounds& evaluations_;
  Snapshots& snapshots_;
  SnapshotRequests requests_;
  std::map<Incarnation, Pending> pending_;  // by client
  std::set<NodeId> refused_;                // members that know why they cannot leave
};

}  // namespace pando
