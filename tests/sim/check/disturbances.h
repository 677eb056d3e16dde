// Disturbances: what keeps messages back in the simulated job, and so explains silences, deaths and
// rollbacks (P10, P23, P27). Part of Checker.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "tests/sim/check/verdict.h"
#include "tests/sim/process.h"
#include "tests/sim/storage/disk.h"

namespace pando::sim {

using Processes = std::vector<std::unique_ptr<Process>>;

// Null if no living process has this incarnation.
Process* FindProcess(const Processes& processes, Incarnation incarnation);

class Disturbances {
 public:
  struct Around {  // all outlive it
    const World& world;
    const JobPlan& plan;
    const VirtualDisk& disk;
    const Processes& processes;
    bool is_noisy;  // messages are lost or late: silences need no other cause
  };
  Disturbances(const Around& around, Verdict& verdict) : around_(around), verdict_(verdict) {}

  void NoteSchedulerAway() { is_scheduler_away_ = true; }
  void NoteSchedulerBack() {
    is_scheduler_away_ = false;
    scheduler_back_at_ = around_.world.now();
  }
  bool is_scheduler_away() const { return is_scheduler_away_; }
  void CheckSilence(const Envelope& envelope, const PeerSilent& silent);
  // Whether something recently kept this process's messages back.
  bool IsDisturbed(const Process& process) const;

 private:
  bool IsLate(Micros end) const;  // lately: silences last on for a while after their cause
  bool IsUnreachable(Incarnation incarnation) const;
  bool IsSchedulerInTrouble() const;

  const Around around_;
  Verdict& verdict_;
  std::map<Incarnation, Micros> silent_at_;  // peers in reports of silence, and when
  bool is_scheduler_away_ = true;
  Micros scheduler_back_at_{0};
};

}  // namespace pando::sim
