// Leases says which members of the run are dead: those that were silent for a lease, and those
// whose connection broke and that were silent since. RunMembers owns it.
//
// P27: while this process itself was paused, or no message of any member arrives, silence is no
// sign of a death. Then all leases are renewed.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"

namespace pando {

class Leases {
 public:
  // A member whose connection broke has this long to send a message.
  static constexpr Micros kSuspectGrace = std::chrono::milliseconds(400);

  // `lease`: the job's; `lease_for` gives the lease of one member, which may be longer.
  using LeaseFor = std::function<Micros(NodeId)>;
  Leases(Micros lease, LeaseFor lease_for) : lease_(lease), lease_for_(std::move(lease_for)) {}

  // Begins every lease. It is the first call that knows the time.
  void Begin(Micros now);
  void Add(NodeId node) { entries_[node]; }
  void Remove(NodeId node) { entries_.erase(node); }
  // Notes that a message of any process of the run has arrived.
  void OnHeardOfRun(Micros now);
  // Renews the lease of a member that registers, or repeats its registration.
  void OnRegistered(Micros now, NodeId node) { entries_[node].heard_at = now; }
  void OnHeard(Micros now, NodeId node);
  // Notes that the member's connection broke.
  void OnDisconnect(Micros now, NodeId node);

  struct Expired {
    NodeId node;
    const char* detected_by = "";  // FaultRecord::detected_by
  };
  // Returns the members that are dead by now.
  std::vector<Expired> Judge(Micros now);
  // Returns how long no message of any member has arrived, once per silence longer than a lease.
  std::optional<Micros> TakeDeafness(Micros now);
  Micros NextDeadline() const { return look_at_; }

  bool IsSuspected(NodeId node) const { return entries_.at(node).suspected_at.has_value(); }
  Micros SilenceSince(Micros now, NodeId node) const { return now - entries_.at(node).heard_at; }
  // Returns whether the member has been silent for half a lease, or all leases were renewed within
  // the last lease: a report about it then proves nothing.
  bool IsUnheard(Micros now, NodeId node) const;

 private:
  struct Entry {
    Micros heard_at{0};
    std::optional<Micros> suspected_at;  // its connection broke, and no message came since
  };
  const Micros lease_;
  const LeaseFor lease_for_;
  std::map<NodeId, Entry> entries_;
  Micros heard_at_{0};  // when the last message of any process of the run came
  bool has_told_deafness_ = false;
  std::optional<Micros> renewed_at_;  // when all leases were renewed
  Micros judged_at_{-1};
  Micros look_at_{0};  // when Judge looks at all members next; no lease or grace ends before it
};

}  // namespace pando
