// ProcessGroup: child processes of this machine that belong together, for `pando train`. Children
// die with their parent, even after SIGKILL, and an exit is noticed at once.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/atomic_file.h"
#include "common/status.h"

namespace pando {

struct ProcessSpec {
  std::string name;               // "worker-1": unique in its group; names the log
  std::string title;              // "worker 1", for people
  std::vector<std::string> args;  // after the program's name
  std::string log_path;           // standard output and error are appended to it; empty: dropped
  bool keeps_stderr = false;      // standard error stays this process's (the progress line)
  std::string program = "/proc/self/exe";
  int inherited_fd = -1;  // stays open in the child, under the same number
};

struct ProcessExit {
  ProcessSpec spec;
  pid_t pid = 0;
  int exit_code = 0;  // where signal is 0
  int signal = 0;     // that ended it
  std::chrono::system_clock::time_point time;
  bool is_clean() const { return signal == 0 && exit_code == 0; }
};

// Threads: one, and it must live as long as the group: the kernel ties children to their parent
// *thread*. Owns: the children; the destructor kills and reaps what is left.
class ProcessGroup {
 public:
  using OnExit = std::function<void(const ProcessExit&)>;
  using TimePoint = std::chrono::steady_clock::time_point;

  // `on_exit` is called from Wait, once per child; it may call Start (a restart) and Signal.
  explicit ProcessGroup(OnExit on_exit);
  ProcessGroup(const ProcessGroup&) = delete;
  ~ProcessGroup();

  Status Start(const ProcessSpec& spec);
  size_t running_count() const { return children_.size(); }
  bool IsRunning(const std::string& name) const;
  std::optional<pid_t> Pid(const std::string& name) const;

  // Waits until children exit, one of `fds` (-1: none) can be read, or the deadline. Returns
  // whether anything happened before the deadline. Callbacks run before it returns.
  bool Wait(TimePoint deadline, std::span<const int> fds = {});

  void Signal(const std::string& name, int signal);  // nothing where it has exited
  void SignalAll(int signal);
  // Kills what runs and waits for it; callbacks run.
  void KillAll();

 private:
  struct Child {
    ProcessSpec spec;
    pid_t pid = 0;
    UniqueFd pid_fd;  // readable once it has exited
  };
  void Reap(const Child& child);

  OnExit on_exit_;
  std::vector<Child> children_;
};

// "exit code 3" or "signal 9 (SIGKILL)".
std::string ExitText(const ProcessExit& exit);
// The block for the terminal that names the process that failed first, and how, with the end of its
// log.
std::string RootCauseText(const ProcessExit& exit);
// The last lines of a file; empty where it cannot be read.
std::vector<std::string> LogTail(const std::string& path, size_t line_count_max);

}  // namespace pando
