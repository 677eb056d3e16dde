// Process is one simulated operating-system process: its event loops, its heartbeat thread, the
// disks it was given. It can be killed, stopped and continued; a member that the scheduler has
// given up joins again under a new incarnation, as the real one does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/join_core.h"
#include "tests/sim/lead/leading_life.h"
#include "tests/sim/member.h"

namespace pando::sim {

// Until when something kept a process's messages back.
class Disturbance {
 public:
  void Note(Micros until) { disturbed_until_ = std::max(disturbed_until_, until); }
  // It was stopped or cut off from a peer: repeats do not get through.
  void NoteUnreachable(Micros until) {
    unreachable_until_ = std::max(unreachable_until_, until);
    Note(until);
  }
  Micros disturbed_until() const { return disturbed_until_; }
  Micros unreachable_until() const { return unreachable_until_; }

 private:
  Micros disturbed_until_{std::chrono::hours(-1)};
  Micros unreachable_until_{std::chrono::hours(-1)};
};

class Process {
 public:
  Process(const Seat& seat, const JobPlan& plan, const ProcessAround& around);
  ~Process();

  // Starts as a node that joins, or as the run's scheduler.
  void Join();
  using SchedulerStart = LeadingLife::Start;
  void Lead(const SchedulerStart& start);

  void Kill();
  void StopUntil(Micros until);  // SIGSTOP, then SIGCONT
  void ContinueNow();
  void AskToLeave();  // SIGTERM
  void Leave();       // by itself

  const Seat& seat() const { return seat_; }
  const PeerId& self() const { return self_; }
  Incarnation incarnation() const { return self_.incarnation; }
  bool is_alive() const { return is_alive_; }
  bool has_left() const { return has_left_; }
  bool is_stopped() const { return stopped_until_ > around_.world.now(); }
  Disturbance& disturbance() { return disturbance_; }
  const Disturbance& disturbance() const { return disturbance_; }
  bool is_leaving() const { return is_leaving_; }
  void NoteLeaving() { is_leaving_ = true; }  // by a client, a signal or the scheduler
  std::optional<StopReason> left_by() const { return left_by_; }
  // The scheduler's sockets have lost this peer.
  void OnDisconnect(Incarnation incarnation);
  // Null while the process has not joined.
  const Member* member() const { return member_; }
  // The computer of the newest life that had one.
  VirtualComputer* computer();
  // Null in a process that joined.
  LeadingLife* lead() { return lead_.get(); }
  Scheduler* scheduler();

 private:
  void DropLife();
  void BecomeMember(const ViewMember::Identity& identity, uint32_t rank);
  void JoinAgain();
  void OnFinished(StopReason reason, bool all);
  void Beat(uint64_t life);

  const Seat seat_;
  const JobPlan& plan_;
  const ProcessAround around_;
  PeerId self_;
  bool is_alive_ = true;
  bool has_left_ = false;
  std::optional<StopReason> left_by_;
  bool is_leaving_ = false;
  Micros stopped_until_{0};
  Disturbance disturbance_;
  uint64_t life_ = 0;  // one more with each incarnation of this process
  ProcessLoops loops_;
  std::vector<std::unique_ptr<Member>> members_;  // by life
  Member* member_ = nullptr;                      // of this life
  std::unique_ptr<LeadingLife> lead_;             // null: it has joined
};

}  // namespace pando::sim
