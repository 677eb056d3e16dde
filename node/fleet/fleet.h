// Fleet keeps the processes of a run on this machine running. It does what `pando train`
// (node/fleet/local_run) and `pando node` (node/fleet/node_run) have in common.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "node/fleet/exit_table.h"
#include "node/fleet/repeated_deaths.h"
#include "node/processes.h"
#include "node/scheduler_link.h"
#include "node/shutdown_signal.h"
#include "node/supervisor.h"

namespace pando {

inline constexpr const char* kSchedulerName = "scheduler";  // of its process, and of its log

// Threads: the link's, beside its own. Owns: the processes.
class Fleet {
 public:
  using TimePoint = Supervisor::TimePoint;
  enum class Kind : uint8_t {
    kRun,    // all processes of a run
    kGroup,  // the same for run.strategy "allreduce"
    kNode,   // the scheduler and other members may be elsewhere
  };
  // Gets every exit, and what follows it.
  using OnExit = std::function<void(const ProcessExit&, AfterExit)>;
  Fleet(const FleetArgs& args, Kind kind, OnExit on_exit);  // `args` outlives the fleet

  // Names the scheduler that members join, and follows it. `poll_interval` is SchedulerLink's.
  Status Link(const std::string& endpoint, Micros poll_interval, const Keys& keys);
  // Starts the process that workers are forked from.
  Status StartPreloaded();
  // Returns a server or worker of the linked scheduler, with further `args` of the caller.
  ProcessSpec MemberSpec(Role role, uint32_t index, const std::vector<std::string>& args) const;
  Status Start(Role role, uint32_t index, const std::vector<std::string>& args);

  // Waits for an exit, a signal, progress of the run, or the deadline. Returns the signal's number,
  // or 0.
  int Wait(TimePoint deadline);
  // Returns what the table says about this exit in the run's present phase.
  AfterExit Judge(const ProcessExit& exit) const;
  ExitRole FindRole(const std::string& process) const;
  ReportedProgress progress() const { return link_ ? link_->progress() : ReportedProgress(); }

  ShutdownSignal& shutdown() { return shutdown_; }
  Supervisor& supervisor() { return supervisor_; }

 private:
  std::string LogPath(const std::string& name) const;
  AfterExit Decide(const ProcessExit& exit);
  void PrepareRestart(const ProcessExit& exit);
  bool IsInVain(const ProcessExit& exit);
  bool MayComeBack(TimePoint now);

  const FleetArgs& args_;
  const Kind kind_;
  const OnExit on_exit_;
  ShutdownSignal shutdown_;
  Keys keys_;
  std::unique_ptr<SchedulerLink> link_;  // null: the scheduler does not listen yet
  std::map<std::string, std::function<ProcessSpec()>> specs_;  // of the members, by name
  RepeatedDeaths deaths_;
  bool has_one_left_ = false;  // the run is over, or was for one process
  std::optional<TimePoint> unreached_since_;
  TimePoint unreached_at_;
  Supervisor supervisor_;
};

}  // namespace pando
