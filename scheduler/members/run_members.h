// RunMembers welcomes the processes of the run and gives up the dead ones. It owns the members,
// their leases and their ids.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "scheduler/members/fault_ledger.h"
#include "scheduler/members/member.h"
#include "scheduler/members/node_ids.h"
#include "scheduler/run_phase.h"
#include "scheduler/run_progress.h"
#include "scheduler/scheduler_options.h"
#include "scheduler/views/view_ledger.h"

namespace pando {

// Leases says which members of the run are dead: those that were silent for a lease, and those
// whose connection broke and that were silent since. RunMembers owns it.
//
// P27: while this process itself was paused, or no message of any member arrives, silence is no
// sign of a death. Then all leases are renewed.
class Leases {
 public:
  // A member whose connection broke has this long to send a message.
  static constexpr Micros kSuspectGrace = std::chrono::milliseconds(400);

  // `lease`: the job's; `lease_for` gives the lease of one member, which may be longer.
  using LeaseFor = std::function<Micros(NodeId)>;
  Leases(Micros lease, LeaseFor lease_for) : lease_(lease), lease_for_(std::move(lease_for)) {}

  // The first call that knows the time: every lease begins.
  void Begin(Micros now);
  void Add(NodeId node) { entries_[node]; }
  void Remove(NodeId node) { entries_.erase(node); }
  // A message of any process of the run came.
  void OnHeardOfRun(Micros now);
  // The member has registered, or repeats its registration.
  void OnRegistered(Micros now, NodeId node) { entries_[node].heard_at = now; }
  void OnHeard(Micros now, NodeId node);
  // The member's connection broke.
  void OnDisconnect(Micros now, NodeId node);

  struct Expired {
    NodeId node;
    const char* detected_by = "";  // FaultRecord::detected_by
  };
  // The members that are dead by now.
  std::vector<Expired> Judge(Micros now);
  // How long no message of any member has arrived, if that is longer than a lease and not told yet.
  std::optional<Micros> TakeDeafness(Micros now);
  Micros NextDeadline() const;

  bool IsSuspected(NodeId node) const { return entries_.at(node).suspected_at.has_value(); }
  Micros SilenceSince(Micros now, NodeId node) const { return now - entries_.at(node).heard_at; }
  // Whether we hear the member too seldom to trust a report about it, or could not hear it of late.
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
};

// WorkerUse sums up the workers' waits since this life of the scheduler began, as their heartbeats
// say. RunMembers owns it; the run's recorder reads it.
class WorkerUse {
 public:
  // `has_past`: an earlier life of the scheduler has counted the waits before a worker's first
  // heartbeat to this one.
  explicit WorkerUse(bool has_past) : has_past_(has_past) {}

  void OnHeartbeat(const Heartbeat& before, const Heartbeat& heartbeat, size_t worker_count) {
    if (has_past_ && before.data_stall_us + before.exposed_sync_us == 0) return;
    const auto since = [](uint64_t now, uint64_t then) { return now > then ? now - then : 0; };
    data_stall_us_ += since(heartbeat.data_stall_us, before.data_stall_us);
    exposed_sync_us_ += since(heartbeat.exposed_sync_us, before.exposed_sync_us) /
                        std::max<size_t>(1, worker_count);
  }

  // All workers' threads together, waiting for samples.
  uint64_t data_stall_us() const { return data_stall_us_; }
  // One worker's thread, waiting for parameters, on average.
  uint64_t exposed_sync_us() const { return exposed_sync_us_; }

 private:
  const bool has_past_;
  uint64_t data_stall_us_ = 0;
  uint64_t exposed_sync_us_ = 0;
};

// GpuUse sums up the workers' GPUs, as their last heartbeats say. It is zero if no worker has one.
struct GpuUse {
  uint64_t memory_bytes = 0;  // the most memory in use on one GPU
  double percent = 0;         // the mean share of time with a kernel at work
};
inline GpuUse SumGpuUse(const Members& members) {
  GpuUse use;
  uint32_t gpu_count = 0;
  for (const auto& [node, member] : members.all()) {
    const Heartbeat& heartbeat = member.heartbeat;
    if (heartbeat.gpu_memory_bytes == 0) continue;
    use.memory_bytes = std::max(use.memory_bytes, heartbeat.gpu_memory_bytes);
    use.percent += heartbeat.gpu_percent;
    ++gpu_count;
  }
  if (gpu_count > 0) use.percent /= gpu_count;
  return use;
}

// Other parts keep data about each member. The scheduler's dispatcher implements it.
class MembershipObserver {
 public:
  virtual ~MembershipObserver() = default;
  // The member is removed after this call.
  virtual void OnForget(const Member& member) = 0;
};

class RunMembers {
 public:
  RunMembers(const SchedulerOptions& options, const JobPlan& plan, ViewLedger& views,
             JournaledOutbox& outbox, RunPhase& phase, FaultLedger& faults,
             const RunProgress& progress, Members& members, MembershipObserver& observer);
  RunMembers(const RunMembers&) = delete;

  // The first call that knows the time.  Returns false if it is not the first.
  bool Begin(Micros now);
  // Renews the sender's lease.  Returns null if the sender is not a member, or not in a role that
  // may send this; if it was a member, it gets Refused.
  const Member* OnHeard(Micros now, const Envelope& envelope);
  // Returns the member, if it is a new one.
  const Member* OnRegister(Micros now, const PeerId& from, const Register& registration);
  // Returns true if the member is ready now and was not before.
  bool OnReady(Micros now, const PeerId& from, const Ready& ready);
  void OnHeartbeat(const PeerId& from, const Heartbeat& heartbeat);
  void OnBye(const PeerId& from);
  // The connection of a process broke: it is dead unless a message of it comes soon. `nonsense`: it
  // has sent that, which is no message, and is given up.
  void OnDisconnect(Micros now, Incarnation incarnation, const std::string& nonsense);
  // Gives up the members whose leases are over.
  void Tick(Micros now);
  Micros NextDeadline() const { return leases_.NextDeadline(); }

  // The member is dead. `action` and `detected_by` are those of its FaultRecord. `cause`: how it
  // ended, "signal 9 (SIGKILL)"; empty: as `action` says.
  void OnDeath(Micros now, NodeId node, const std::string& action, const std::string& detected_by,
               const std::string& cause = "");
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

  const JobPlan& plan_;
  ViewLedger& views_;
  JournaledOutbox& outbox_;
  RunPhase& phase_;
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
