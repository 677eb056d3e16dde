// Votes settles replicas of a shard that have made different versions (P8). It asks each replica
// for its hash of the record.
//
//   what the replicas say                            | what happens
//   -------------------------------------------------+------------------------------------------
//   one has other bits now than when it made them    | it is outvoted: its memory has changed
//   most of three or more have one hash              | those with another hash are outvoted
//   all have the same hash                           | nothing: an acknowledgement was damaged
//   there are only two, or no hash has most of them, | the run rolls back: none can tell which of
//   or too few answer within kPatience               | them is wrong
//
// An outvoted server is declared dead, and its machine gets no replicas for the rest of the run,
// unless all servers are on such machines. If it was the primary, the run rolls back all the same:
// workers may have read its wrong parameters.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scheduler/members/run_members.h"

namespace pando {

class Votes : SchedulerPart {
 public:
  Votes(const std::optional<SchedulerState>& state, const SchedulerPart& part,
        RunMembers& membership);

  // Handles a primary's report that a backup's record differs from its own.
  void OnDivergence(Micros now, const PeerId& from, const Divergence& divergence);
  void OnRecordHashes(Micros now, const PeerId& from, const RecordHashes& hashes);
  // Asks the replicas that have not answered again.
  void Repeat();
  // Gives up votes that take too long.
  void Tick(Micros now);
  Micros NextDeadline() const;
  void StartGeneration() {
    votes_.clear();
    outvoted_.clear();
  }
  // A member that is gone has no vote any more.
  void Forget(const Member& member);

  // Returns the servers that get no new replicas because a server of their machine was outvoted.
  std::set<NodeId> Distrusted() const;
  // The journal keeps this, in the order in which they were outvoted.
  const std::vector<std::string>& distrusted_machines() const { return distrusted_machines_; }

 private:
  static constexpr Micros kPatience = std::chrono::seconds(2);

  using Hashes = std::map<PeerId, std::optional<RecordHashes>>;  // by replica; none: no answer yet
  struct Vote {
    Version version;
    std::string what;  // for people
    PeerId primary;
    std::set<PeerId> in_sync;  // when it began; the others copy a replica
    Hashes hashes;
    Micros ends_at{0};
  };
  void Ask(ShardId shard, const Vote& vote);
  void Settle(Micros now, ShardId shard, bool is_over);
  void OnOutvoted(Micros now, const PeerId& server, const Vote& vote);
  void RollBack(Micros now, const std::string& what);

  RunMembers& membership_;
  std::vector<std::string> distrusted_machines_;
  std::set<Incarnation> outvoted_;  // in this generation
  std::map<ShardId, Vote> votes_;
  uint32_t rollback_count_ = 0;
};

}  // namespace pando
