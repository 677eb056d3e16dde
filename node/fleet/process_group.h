// ProcessGroup has the child processes of this machine that belong together. Children die with
// their parent, even after SIGKILL, and an exit is noticed at once. Supervisor restarts its
// processes. Threads: one, which must live as long as the group, since the kernel ties children to
// their parent *thread*. Owns: the children; the destructor kills and reaps those that are left.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/cgroup.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "node/fleet/exit_table.h"
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

}  // namespace pando
