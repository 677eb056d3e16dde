// Process is one simulated operating-system process: its event loops, its heartbeat thread, the
// disks it was given. It can be killed, stopped and continued; a member that the scheduler has
// given up joins again under a new incarnation, as the real one does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/job_plan.h"
#include "proto/join.h"
#include "scheduler/scheduler.h"
#include "server/lane.h"
#include "tests/sim/disk.h"
#include "tests/sim/loop.h"
#include "tests/sim/network.h"
#include "tests/sim/virtual_computer.h"
#include "worker/session.h"

namespace pando::sim {

inline constexpr JobId kJob{77};

// What stays when a process is started again.
struct Seat {
  Place place = 0;
  Role role = Role::kWorker;
  std::string host;
  uint32_t process_id = 0;
  uint16_t lane_count = 1;
  Micros micro_batch_time{0};
  size_t push_window_bytes = PushWindow::kBytesMax;
  std::string name;  // "server 2": for traces, and for a supervisor's notes
};

class Process;

// The keeper of the processes. It gets their events before anything else happens.
class ProcessKeeper {
 public:
  virtual ~ProcessKeeper() = default;
  // A lane has handled an event or ticked.
  virtual void OnLaneEvent(Process& process, const Lane& lane) = 0;
  // A worker has.
  virtual void OnSessionEvent(Process& process, const Session& session) = 0;
  // It has left by itself: Stop, or a scheduler that is done or fenced.
  virtual void OnLeft(Process& process) = 0;
  // The scheduler's journal is about to take this state: the process may die before it does.
  virtual void BeforeCommit(Process& process) = 0;
  // It has taken it, or shut the process out: the process may die before it announces anything.
  virtual void OnCommitted(Process& process, const std::optional<SchedulerState>& before,
                           bool is_taken) = 0;
  // A member was refused and starts another life.
  virtual void OnJoinAgain(Process& process) = 0;
  // Whether the worker gets this micro-batch wrong, this time (P41).
  virtual bool FlipsBit(Process& process, Step step, MicroBatch m) = 0;
  // A worker that was to verify this micro-batch has none of its parameters any more (P41).
  virtual void OnUnverified(Step step, MicroBatch m) = 0;
};

class Process {
 public:
  struct Around {  // what it lives among; all outlive it
    World& world;
    Network& network;
    VirtualDisk& disk;
    JournalDisk& journal;
    RunObserver& observer;
    ProcessKeeper& keeper;
  };
  Process(const Seat& seat, const JobPlan& plan, Around around);
  ~Process();

  // Starts as a node that joins, or as the run's scheduler.
  void Join();
  struct SchedulerStart {
    bool is_fresh = false;  // resumed: no old member lives
    Step next_row;
  };
  void Lead(const SchedulerStart& start);

  void Kill();
  void StopUntil(Micros until);  // SIGSTOP, then SIGCONT
  void ContinueNow();
  void AskToLeave();  // SIGTERM

  const Seat& seat() const { return seat_; }
  Incarnation incarnation() const { return incarnation_; }
  bool is_alive() const { return is_alive_; }
  bool has_left() const { return has_left_; }
  bool is_stopped() const { return stopped_until_ > around_.world.now(); }
  // Until when something kept its messages back.
  Micros disturbed_until() const { return disturbed_until_; }
  void NoteDisturbed(Micros until) { disturbed_until_ = std::max(disturbed_until_, until); }
  // Until when it was stopped or cut off from a peer: repeats do not get through.
  Micros unreachable_until() const { return unreachable_until_; }
  void NoteUnreachable(Micros until) {
    unreachable_until_ = std::max(unreachable_until_, until);
    NoteDisturbed(until);
  }
  bool is_leaving() const { return is_leaving_; }
  void NoteLeaving() { is_leaving_ = true; }  // by a client, a signal or the scheduler
  bool is_member() const { return !lanes_.empty() || session_ != nullptr; }
  NodeId node() const { return self_.node; }
  uint32_t rank() const { return rank_; }
  // That it is in, by its first lane.  REQUIRES: is_member().
  const View& view() const { return session_ ? session_->view() : lanes_.front()->view(); }
  std::optional<StopReason> left_by() const { return left_by_; }
  // The scheduler's sockets have lost this peer.
  void OnDisconnect(Incarnation incarnation);
  const std::vector<Lane*>& lanes() const { return lanes_; }
  const Session* session() const { return session_; }
  VirtualComputer* computer() { return computer_.get(); }
  Scheduler* scheduler() { return scheduler_; }
  const Scheduler* scheduler() const { return scheduler_; }
  Loop* first_loop() { return loops_.empty() ? nullptr : loops_.front(); }

 private:
  class JournalPort;
  class SnapshotDoor;
  class ObserverDoor;
  Loop& AddLoop();
  void DropLoops();
  void BecomeMember(const JoinCore& join);
  void AddLane(const ViewMember::Identity& identity);
  void AddSession(const ViewMember::Identity& identity);
  void JoinAgain();
  void Leave();
  void AfterTick(const Lane& lane);
  void AfterTick(const Session& session);
  void Beat(uint64_t life);
  void Listen(Loop& loop, const PeerId& self);

  const Seat seat_;
  const JobPlan& plan_;
  Around around_;
  Incarnation incarnation_;
  PeerId self_;
  uint32_t rank_ = 0;
  bool is_alive_ = true;
  bool has_left_ = false;
  std::optional<StopReason> left_by_;
  bool is_leaving_ = false;
  bool was_given_up_ = false;  // this incarnation, by the scheduler
  Micros stopped_until_{0};
  Micros disturbed_until_{std::chrono::hours(-1)};
  Micros unreachable_until_{std::chrono::hours(-1)};
  uint64_t life_ = 0;                             // one more with each incarnation of this process
  std::vector<std::unique_ptr<Loop>> all_loops_;  // of earlier lives too: events name them
  std::vector<Loop*> loops_;
  std::vector<std::unique_ptr<SnapshotDoor>> doors_;
  std::vector<std::unique_ptr<VirtualComputer>> old_computers_;
  std::unique_ptr<VirtualComputer> computer_;
  std::unique_ptr<JournalPort> journal_port_;
  std::unique_ptr<ObserverDoor> observer_door_;
  std::vector<Lane*> lanes_;
  Session* session_ = nullptr;
  Scheduler* scheduler_ = nullptr;
};

}  // namespace pando::sim
