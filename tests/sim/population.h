// Population: the processes of a simulated job and their supervisor, which starts them, kills them,
// and starts them again. Used by Cluster and Faults.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan/job_plan.h"
#include "tests/sim/check/checker.h"
#include "tests/sim/coverage.h"
#include "tests/sim/desk.h"
#include "tests/sim/process.h"
#include "tests/sim/storage/disk.h"
#include "tests/sim/swarm.h"

namespace pando::sim {

// The surroundings of the processes. All outlive the population.
struct Stage {
  World& world;
  const Swarm& swarm;
  Network& network;
  VirtualDisk& disk;
  JournalDisk& journal;
  ViewSeal* seal;  // null: the run has no keys
  Coverage& coverage;
  void Note(const std::string& text) const;  // in the trace
};

class Population {
 public:
  struct Parts {  // all outlive it
    const JobPlan& plan;
    Processes& processes;
    Checker& checker;
    RunObserver& observer;
    ProcessKeeper& keeper;
  };
  enum class CommitPoint : uint8_t { kNone, kBefore, kAfter };
  Population(const Stage& stage, const Parts& parts);

  // Starts the scheduler and all that the job wants.
  void Begin();
  void Start(Role role);  // one more
  void Kill(Process& process);
  void Reset(Process& process);  // its connections
  void KillAtCommit();           // the scheduler, within its next commit
  void OnCommit(const Process& process, CommitPoint point);
  void Drain(Process& process);
  void AskToLeave(Process& process);
  void Ask(CommandKind kind);  // a client's command
  // How often a client has, since the run began or was resumed; 0 if another process leads.
  uint32_t StopsAsked(const Process& leader) const { return &leader == leader_ ? stop_count_ : 0; }
  void StartSecondScheduler(Micros pause);
  void PowerOff();
  // No fault happens any more: the needed processes are restarted.
  void Heal();

  // A resumed run wants other numbers of processes.
  const JobPlan& plan() const { return *plan_; }
  Micros micro_batch_time() const { return micro_batch_time_; }
  std::vector<Process*> Living(Role role) const;  // schedulers too
  Process* Find(Incarnation incarnation) const {
    return FindProcess(parts_.processes, incarnation);
  }
  Process* Leader() const { return leader_ && leader_->is_alive() ? leader_ : nullptr; }
  bool HasLeaderLeft() const { return leader_ == nullptr || leader_->has_left(); }
  bool is_healed() const { return is_healed_; }

 private:
  Process& AddProcess(const Seat& seat);
  Seat NewSeat(Role role);
  void StartScheduler(const Seat& seat, bool is_resumed);
  void StartAgain(Process& dead);
  void Replace(Process& old);
  void TellOfDisconnect(const Process& process);
  bool MayStayAway(Role role) const;
  void KeepEnough();
  void Resume();

  const Stage stage_;
  const Parts parts_;
  const JobPlan* plan_;
  std::vector<std::unique_ptr<JobPlan>> later_plans_;
  const Micros micro_batch_time_;
  Desk desk_;
  Place next_place_ = 1;
  uint32_t next_process_id_ = 100;
  uint64_t power_epoch_ = 0;
  uint32_t starts_under_way_[3] = {0, 0, 0};  // by role: supervisors' back-offs
  Process* leader_ = nullptr;
  CommitPoint commit_death_ = CommitPoint::kNone;
  uint32_t stop_count_ = 0;
  bool is_healed_ = false;
  bool is_powered_ = true;
};

}  // namespace pando::sim
