// Processes of the end-to-end tests: the real program as users start it, watched from outside.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/unique_fd.h"
#include "tests/contains.h"
#include "tests/deadline.h"

namespace pando {

using TestClock = std::chrono::steady_clock;
using Args = std::vector<std::string>;

// The exit status of a test that cannot run here: Meson skips it.
inline constexpr int kSkipped = 77;

// The program under test: the environment variable PANDO_PROGRAM.
std::string PandoProgram();

// Process: one pando command, in a separate process group, as a shell would start it; standard
// output and error go to files. The destructor kills and reaps it, and it dies with this program.
class Process {
 public:
  // `through`: a command that execs what follows it, such as nsenter; empty for none.
  Process(const std::string& folder, const std::string& name, const Args& args,
          const Args& through = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  bool is_running();
  void Signal(int signal) const;       // to it alone
  void SignalGroup(int signal) const;  // to its group, as a terminal's Ctrl-C
  // Waits for its end.  Fails the test at the deadline.
  void Await(std::chrono::milliseconds within = kEventDeadline);

  // Only for a process that has ended.
  int exit_code() const;  // 128 + signal, as shells count, where a signal ended it
  std::chrono::duration<double> lifetime() const { return ended_at_ - started_at_; }
  TestClock::time_point ended_at() const { return ended_at_; }
  uint64_t peak_memory_bytes() const { return peak_memory_bytes_; }

  std::string out() const;  // standard output so far
  std::string err() const;  // standard error so far
  std::vector<std::string> err_lines() const;

 private:
  void Reap(int options);

  std::string out_path_;
  std::string err_path_;
  pid_t pid_ = -1;
  UniqueFd pid_fd_;  // readable once it has ended
  bool has_ended_ = false;
  int wait_status_ = 0;
  uint64_t peak_memory_bytes_ = 0;
  TestClock::time_point started_at_;
  TestClock::time_point ended_at_;
};

// Waits until the condition holds; looks every few milliseconds. False at the deadline.
bool Becomes(const std::function<bool()>& condition,
             std::chrono::milliseconds within = kEventDeadline);

// Children of a process by their subcommand: "scheduler", "server", "worker".
std::map<std::string, std::vector<pid_t>> ChildrenByRole(pid_t parent);
bool IsGone(pid_t pid);  // no such process any more, or only its exit status is left

// Peak of the resident memory and what is resident now, of a running process.
uint64_t PeakMemoryBytes(pid_t pid);
uint64_t ResidentBytes(pid_t pid);

// The number that follows a worker's word in its log: "pushed 17 bytes"; 0 where there is none.
uint64_t BytesAfter(const std::string& log, const std::string& word);

}  // namespace pando
