// Supervisor keeps processes of this machine running: it restarts a dead process after a
// back-off, and reports the death at once. It works on ProcessGroup. `pando train` and `pando
// node` use it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/cgroup.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "node/chaos_schedule.h"
#include "node/fleet/exit_table.h"
#include "node/leave_notices.h"
#include "node/shutdown_signal.h"
#include "proto/messages.h"

namespace pando {

struct ProcessSpec {
  std::string name;               // "worker-1": unique in its group; names the log
  std::string title;              // "worker 1", for people
  std::vector<std::string> args;  // after the program's name
  std::string log_path;           // standard output and error are appended to it; empty: dropped
  bool keeps_stderr = false;      // standard error stays this process's (the progress line)
  bool keeps_stdout = false;      // also standard output: the prints of a user's program
  std::string program = "/proc/self/exe";   // for another one argv[0] is its path
  int inherited_fd = -1;                    // stays open in the child, under the same number
  bool is_forked = false;                   // from the preloaded process, if there is one
  std::vector<std::string> variables = {};  // "NAME=value", beside this process's own
};

struct ProcessExit {
  ProcessSpec spec;
  pid_t pid = 0;
  uint64_t key = 0;               // its ProcessKey()
  int exit_code = 0;              // set if signal is 0
  int signal = 0;                 // the signal that ended it
  bool is_out_of_memory = false;  // the memory limit of its cgroup ended it
  bool is_injected = false;       // chaos killed it
  uint32_t restart_count = 0;     // its restarts before this exit, if it has died too often
  std::chrono::seconds restarts_within{0};  // the time of these restarts
  std::optional<Stop> stop;  // how the run had ended for it before its exit; none: it had not
  std::chrono::system_clock::time_point time;
  bool is_clean() const { return signal == 0 && exit_code == 0; }
  ExitKind kind() const;
  // Returns whether a program failed in its own work after the run was completed.
  bool is_late_failure() const {
    return !is_clean() && stop && stop->reason == StopReason::kCompleted;
  }
};

// OomKills attributes the memory limit's kills, which the kernel only counts, to killed children.
// Threads: none.
class OomKills {
 public:
  explicit OomKills(uint64_t count) : count_(count) {}
  // Returns whether the memory limit killed a child. Call it for each child that a signal killed;
  // `count` is the cgroup's.
  bool Take(uint64_t count);

 private:
  uint64_t count_;
  uint64_t open_ = 0;  // in the last second, not attributed yet
  std::chrono::steady_clock::time_point counted_at_{};
};

// ProcessGroup has the child processes of this machine that belong together. Children die with
// their parent, even after SIGKILL, and an exit is noticed at once. Threads: one, which must live
// as long as the group, since the kernel ties children to their parent *thread*. Owns: the
// children; the destructor kills and reaps those that are left.
class ProcessGroup {
 public:
  using OnExit = std::function<void(const ProcessExit&)>;
  using TimePoint = std::chrono::steady_clock::time_point;

  // Wait calls `on_exit` once per child; it may call Start (a restart) and Signal.
  explicit ProcessGroup(OnExit on_exit);
  ProcessGroup(const ProcessGroup&) = delete;
  ~ProcessGroup();

  Status Start(const ProcessSpec& spec);
  // Takes in a process that a child has forked and left to this process, which is its reaper.
  Status Adopt(const ProcessSpec& spec, pid_t pid, uint64_t key);
  // From here on, processes whose parent ends become children of this one.
  void BecomeReaper();
  size_t running_count() const { return children_.size(); }
  bool IsRunning(const std::string& name) const;
  std::optional<pid_t> Pid(const std::string& name) const;
  uint64_t Key(const std::string& name) const;  // its ProcessKey(); 0 if it does not run

  // Waits until children exit, one of `fds` (-1: none) is readable, or the deadline passes. Returns
  // whether anything happened before the deadline. Callbacks run before it returns.
  bool Wait(TimePoint deadline, std::span<const int> fds = {});

  void Signal(const std::string& name, int signal);  // does nothing if it has exited
  void SignalAll(int signal);
  // Kills the running processes and waits for them; callbacks run.
  void KillAll();

 private:
  struct Child {
    ProcessSpec spec;
    pid_t pid = 0;
    uint64_t key = 0;
    UniqueFd pid_fd;  // readable after its exit
  };
  const Child* Find(const std::string& name) const;
  void Reap(const Child& child);
  void ReapOrphans() const;

  OnExit on_exit_;
  std::vector<Child> children_;
  bool is_reaper_ = false;
  OomKills oom_kills_{ReadCgroup().oom_kill_count};
};

// "exit code 3" or "signal 9 (SIGKILL)"; after too many deaths also the restarts.
std::string ExitText(const ProcessExit& exit);
// The block for the terminal that names the process that failed first, and how, with the end of its
// log.
std::string RootCauseText(const ProcessExit& exit);
// Returns the last lines of a file; empty if it cannot be read.
std::vector<std::string> LogTail(const std::string& path, size_t line_count_max);

inline constexpr uint32_t kRestartsMaxDefault = 30;

// RestartPolicy says when a process that died may restart. The pause doubles with every death, so
// that a process that fails at once is not restarted all the time. A life of ten seconds resets the
// pause. The restarts count until a life of a minute. Threads: none.
class RestartPolicy {
 public:
  using TimePoint = ProcessGroup::TimePoint;
  static constexpr std::chrono::milliseconds kPauseMin{100};
  static constexpr std::chrono::milliseconds kPauseMax{5000};
  static constexpr std::chrono::seconds kCalmLife{10};
  static constexpr std::chrono::seconds kGoodLife{60};

  explicit RestartPolicy(uint32_t restarts_max) : restarts_max_(restarts_max) {}
  void OnStart(TimePoint now) { started_at_ = now; }
  // Returns when to restart it; none if it has died too often. kInjected does not count. The life
  // of kUnreached resets nothing, since it never reached the scheduler.
  std::optional<TimePoint> OnDeath(TimePoint now, ExitKind kind);
  uint32_t restart_count() const { return death_count_; }  // without a good life in between
  TimePoint first_death_at() const { return first_death_at_; }

 private:
  uint32_t restarts_max_;
  uint32_t death_count_ = 0;  // without a good life in between
  std::chrono::milliseconds pause_ = kPauseMin;
  TimePoint started_at_{};
  TimePoint first_death_at_{};  // of the deaths that count
};

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

  // Workers with is_forked are forked from the process of this program
  // (node/programs/program_process.h).
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
