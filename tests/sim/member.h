// The parts of a simulated process beside its state: its seat, its event loops, and as a member
// the real cores of a server or a worker. Used by Process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plan/job_plan.h"
#include "scheduler/scheduler.h"
#include "server/lane.h"
#include "tests/sim/compute/virtual_computer.h"
#include "tests/sim/lead/copies.h"
#include "tests/sim/loop.h"
#include "tests/sim/network.h"
#include "tests/sim/storage/disk.h"
#include "tests/sim/storage/files.h"
#include "worker/session.h"

namespace pando::sim {

inline constexpr JobId kJob{77};

// The part that stays when a process is started again.
struct Seat {
  Place place = 0;
  Role role = Role::kWorker;
  std::string host;
  std::string rack = {};
  uint32_t process_id = 0;
  uint16_t lane_count = 1;
  Micros micro_batch_time{0};
  std::optional<size_t> push_window_bytes = {};
  size_t norm_peers_max = 0;
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

struct ProcessAround {  // what a process lives among; all outlive it
  World& world;
  Network& network;
  VirtualDisk& disk;
  const bool files_travel;                  // to the scheduler (P45); else servers share the disk
  const Micros copy_lag_max;                // of a standby's folder (P47); 0: there is none
  const std::function<FolderState()> look;  // into the leading scheduler's folder
  JournalDisk& journal;
  ViewSeal* seal;  // null: the run has no keys
  RunObserver& observer;
  ProcessKeeper& keeper;
};

// The event loops of one process.
class ProcessLoops {
 public:
  ProcessLoops(World& world, Network& network, Place place)
      : world_(world), network_(network), place_(place) {}

  Loop& Add(bool is_stopped);
  // Messages to this name go to the loop's core from now on.
  void Listen(Loop& loop, const PeerId& self);
  // The loops of this life end.
  void Drop(Incarnation incarnation);
  void Stop();
  void Continue();
  Loop& front() { return *loops_.front(); }
  // Whether the scheduler has given up this life.
  bool was_given_up() const { return was_given_up_; }
  void BeginLife() { was_given_up_ = false; }

 private:
  World& world_;
  Network& network_;
  const Place place_;
  std::vector<std::unique_ptr<Loop>> all_loops_;  // of earlier lives too: events name them
  std::vector<Loop*> loops_;
  bool was_given_up_ = false;
};

// One life of a process as a member of the run: the lanes of a server, or the session of a worker.
// It stays when the life ends, because events name it.
class Member {
 public:
  struct Life {
    Process& process;
    const Seat& seat;
    const JobPlan& plan;
    const ProcessAround& around;
    ProcessLoops& loops;
    bool is_stopped;
    // Whether the process is still in this life.
    std::function<bool()> is_on;
    // A core has finished: `all` of them, or only one.
    std::function<void(StopReason reason, bool all)> on_finished;
  };
  Member(Life life, const ViewMember::Identity& identity, uint32_t rank);
  ~Member();

  uint32_t rank() const { return rank_; }
  const std::vector<Lane*>& lanes() const { return lanes_; }
  VirtualComputer* computer() { return computer_.get(); }
  // That it is in, by its first lane.
  const View& view() const { return session_ ? session_->view() : lanes_.front()->view(); }
  // Asks the scheduler to leave.
  void Leave();
  // From the heartbeat thread.
  Envelope MakeHeartbeat() const;

 private:
  class SnapshotDoor;
  void AddFiles();
  void AddLane(const ViewMember::Identity& identity);
  void AddSession(const ViewMember::Identity& identity);
  void AfterTick(const Lane& lane);

  const Life life_;
  const PeerId self_;
  const uint32_t rank_;
  std::unique_ptr<RecordQueue> records_;  // null: the disk is shared
  std::vector<std::unique_ptr<SnapshotDoor>> doors_;
  std::unique_ptr<VirtualComputer> computer_;
  std::vector<Lane*> lanes_;
  Session* session_ = nullptr;
};

}  // namespace pando::sim
