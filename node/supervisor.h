// Supervisor keeps processes of this machine running: it restarts a dead process after a
// back-off, and reports the death at once. It works on ProcessGroup. `pando train` and `pando
// node` use it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "common/status.h"
#include "node/chaos_schedule.h"
#include "node/fleet/exit_table.h"
#include "node/fleet/process_group.h"
#include "node/fleet/restart_policy.h"
#include "node/leave_notices.h"
#include "node/shutdown_signal.h"
#include "proto/messages.h"

namespace pando {

inline constexpr uint32_t kRestartsMaxDefault = 30;

class Preload;

// Threads: one, as for ProcessGroup. Owns: the processes.
class Supervisor {
 public:
  using TimePoint = ProcessGroup::TimePoint;
  struct Options {
    uint32_t restarts_max =
        kRestartsMaxDefault;  // of one process, each within one minute of its start
    // Takes reports for the scheduler: deaths and injected faults. Numbers the notes.
    std::function<void(FaultNote)> on_fault;
    // Sees every exit, and decides what follows.
    std::function<AfterExit(const ProcessExit&)> on_exit;
    // Called for each death that is followed by a restart. May be null.
    std::function<void(const ProcessExit&)> on_restart;
  };
  explicit Supervisor(Options options);
  ~Supervisor();

  // Starts the process that workers with is_forked are forked from (node/programs/preload.h).
  Status StartPreloaded(const ProcessSpec& spec);
  // Starts the process, and keeps it running while on_exit decides that.
  Status Start(const ProcessSpec& spec, Role role);
  // Sets how its later lives are started. REQUIRES: spec.name is kept.
  void SetSpec(const ProcessSpec& spec);

  // Calls ProcessGroup::Wait, and restarts the processes whose pause is over.
  bool Wait(TimePoint deadline, std::span<const int> fds = {});
  // Waits until all processes, or the one of this name, have exited, the deadline passes, or a
  // signal asks to end the wait.
  void AwaitExits(ShutdownSignal& shutdown, TimePoint deadline, const std::string& name = "");
  // Injects a fault and reports it. A stopped process continues after the act's duration.
  void Inject(const ChaosAct& act);
  // From here on no process restarts, no exit is a failure, and stopped processes continue.
  void Retire();
  bool is_retired() const { return is_retired_; }

  // The first exit that was not followed by a restart.
  const std::optional<ProcessExit>& root_cause() const { return root_cause_; }
  // The reason why a process could not be restarted.
  const Status& start_status() const { return start_status_; }
  // The running processes for which the run has ended.
  std::set<std::string> RunningAfterEnd() const;
  // The processes that run or will be restarted.
  size_t kept_count() const { return kept_.size(); }
  size_t running_count() const { return group_.running_count(); }
  std::set<std::string> Running() const;
  void Signal(const std::string& name, int signal) { group_.Signal(name, signal); }
  void SignalAll(int signal) { group_.SignalAll(signal); }
  void KillAll() { group_.KillAll(); }

 private:
  struct Kept {
    ProcessSpec spec;
    Role role = Role::kWorker;
    RestartPolicy policy;
    std::optional<TimePoint> restart_at;  // it is dead until then
    std::optional<TimePoint> resume_at;   // it is stopped until then
    uint64_t killed_us = 0;               // when chaos killed it; 0 once its exit is seen
  };
  Status StartLife(const ProcessSpec& spec);
  void NoteStart(Status status);
  void OnExit(ProcessExit exit);
  void Bury(ProcessExit exit, AfterExit next);
  void TellDeath(const Kept& kept, const ProcessExit& exit);
  FaultNote MakeNote(const Kept& kept, pid_t pid, uint64_t key) const;
  void RunDue(TimePoint now);
  TimePoint NextDue() const;

  const Options options_;
  ProcessGroup group_;
  LeaveNotices notices_;
  std::unique_ptr<Preload> preload_;  // null: none
  std::map<std::string, Kept> kept_;  // by name
  bool is_retired_ = false;
  std::optional<ProcessExit> root_cause_;
  Status start_status_;
};

}  // namespace pando
