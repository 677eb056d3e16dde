#include "node/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <utility>

#include "run/run_folder.h"

namespace pando {
namespace {

constexpr int kExecFailed = 127;  // as shells say it
constexpr size_t kLogTailLines = 12;
constexpr std::streamoff kLogTailBytes = 16 * 1024;

// What the child needs between fork and exec, prepared before the fork: only async-signal-safe
// calls are allowed there.
struct ExecPlan {
  const char* program;
  std::vector<char*> argv;  // ends with null
  int log_fd;
  int null_fd;
  bool keeps_stderr;
  int inherited_fd;
  pid_t parent;
};

[[noreturn]] void Exec(const ExecPlan& plan) {
  // A parent that died before this line cannot signal us any more.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(kExecFailed);
  setpgid(0, 0);  // the terminal's Ctrl-C goes to the parent alone, which stops us in order
  // Handlers before the mask: a signal that waited must not run the parent's handler in the child.
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
  // Makes no sense before the program listens to it (a partition), and would end it.
  ::signal(SIGUSR2, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // A process outside the terminal's group may be stopped for writing to it.
  if (plan.keeps_stderr) ::signal(SIGTTOU, SIG_IGN);
  dup2(plan.null_fd, STDIN_FILENO);
  dup2(plan.log_fd, STDOUT_FILENO);
  if (!plan.keeps_stderr) dup2(plan.log_fd, STDERR_FILENO);
  if (plan.inherited_fd >= 0) fcntl(plan.inherited_fd, F_SETFD, 0);
  execv(plan.program, plan.argv.data());
  _exit(kExecFailed);
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("{}", signal) : fmt::format("SIG{}", name);
}

int PollTimeout(ProcessGroup::TimePoint deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  constexpr int64_t kLongestMs = 3'600'000;  // the caller waits again
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, kLongestMs));
}

}  // namespace

ProcessGroup::ProcessGroup(OnExit on_exit) : on_exit_(std::move(on_exit)) {}

ProcessGroup::~ProcessGroup() {
  on_exit_ = [](const ProcessExit&) {};
  KillAll();
}

Status ProcessGroup::Start(const ProcessSpec& spec) {
  PANDO_CHECK(!IsRunning(spec.name));
  const std::string log_path = spec.log_path.empty() ? "/dev/null" : spec.log_path;
  UniqueFd log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.is_open()) return FileError("open the log", log_path, errno);
  UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null.is_open()) return FileError("open", "/dev/null", errno);
  std::vector<std::string> words{"pando"};
  words.insert(words.end(), spec.args.begin(), spec.args.end());
  ExecPlan plan{.program = spec.program.c_str(),
                .argv = {},
                .log_fd = log.get(),
                .null_fd = null.get(),
                .keeps_stderr = spec.keeps_stderr,
                .inherited_fd = spec.inherited_fd,
                .parent = getpid()};
  for (std::string& word : words) plan.argv.push_back(word.data());
  plan.argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) Exec(plan);
  if (pid < 0)
    return Internal(fmt::format("cannot start {}: {}", spec.title, std::strerror(errno)));
  // By number: glibc 2.36 declares pidfd_open() without C linkage.
  UniqueFd pid_fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pid_fd.is_open()) {  // too many open files: the child's end would not be noticed
    const int error = errno;
    kill(pid, SIGKILL);
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return Internal(fmt::format("cannot watch {}: {}; raise the limit of open files (ulimit -n)",
                                spec.title, std::strerror(error)));
  }
  children_.push_back({.spec = spec, .pid = pid, .pid_fd = std::move(pid_fd)});
  return Status();
}

bool ProcessGroup::IsRunning(const std::string& name) const { return Pid(name).has_value(); }

std::optional<pid_t> ProcessGroup::Pid(const std::string& name) const {
  for (const Child& child : children_) {
    if (child.spec.name == name) return child.pid;
  }
  return std::nullopt;
}

bool ProcessGroup::Wait(TimePoint deadline, std::span<const int> fds) {
  std::vector<pollfd> polled;
  for (const Child& child : children_) polled.push_back({child.pid_fd.get(), POLLIN, 0});
  for (int fd : fds) polled.push_back({fd, POLLIN, 0});
  int ready = 0;
  do {
    ready = poll(polled.data(), polled.size(), PollTimeout(deadline));
  } while (ready < 0 && errno == EINTR);
  // Take the dead out first: a callback may start others.
  std::vector<Child> dead;
  for (size_t i = children_.size(); i-- > 0;) {
    if (polled[i].revents == 0) continue;
    dead.push_back(std::move(children_[i]));
    children_.erase(children_.begin() + static_cast<ptrdiff_t>(i));
  }
  for (const Child& child : dead) Reap(child);
  return ready > 0;
}

void ProcessGroup::Reap(const Child& child) {
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  ProcessExit exit{.spec = child.spec, .pid = child.pid, .time = std::chrono::system_clock::now()};
  if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
  if (WIFEXITED(status)) exit.exit_code = WEXITSTATUS(status);
  on_exit_(exit);
}

void ProcessGroup::Signal(const std::string& name, int signal) {
  if (auto pid = Pid(name)) kill(*pid, signal);  // not reaped, so the id is still the child's
}

void ProcessGroup::SignalAll(int signal) {
  for (const Child& child : children_) kill(child.pid, signal);
}

void ProcessGroup::KillAll() {
  SignalAll(SIGKILL);
  while (!children_.empty()) Wait(TimePoint::max());
}

std::string ExitText(const ProcessExit& exit) {
  if (exit.signal != 0) return fmt::format("signal {} ({})", exit.signal, SignalName(exit.signal));
  return fmt::format("exit code {}", exit.exit_code);
}

std::vector<std::string> LogTail(const std::string& path, size_t line_count_max) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kLogTailBytes));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  if (lines.size() > line_count_max)
    lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(line_count_max));
  return lines;
}

std::string RootCauseText(const ProcessExit& exit) {
  const std::string rule(72, '=');
  std::string text = fmt::format(
      "{}\nRoot Cause (first failure seen):\n"
      "  process : {} (pid {})\n  exit    : {}\n  time    : {}\n",
      rule, exit.spec.title, exit.pid, ExitText(exit), UtcText(exit.time));
  if (exit.spec.log_path.empty()) return text + rule + "\n";
  text += fmt::format("  log     : {}\n", exit.spec.log_path);
  const std::vector<std::string> tail = LogTail(exit.spec.log_path, kLogTailLines);
  text += tail.empty() ? "  its log is empty\n" : "  the end of its log:\n";
  for (const std::string& line : tail) text += fmt::format("  | {}\n", line);
  return text + rule + "\n";
}

}  // namespace pando
