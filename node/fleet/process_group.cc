#include "node/fleet/process_group.h"

#include <fcntl.h>
#include <fmt/core.h>
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

#include "common/atomic_file.h"
#include "common/check.h"
#include "common/exit_codes.h"
#include "common/hash.h"
#include "common/system.h"
#include "common/text.h"
#include "run/output/events_file.h"

namespace pando {
namespace {

constexpr int kExecFailed = 127;  // the code that shells use
constexpr size_t kLogTailLines = 12;
constexpr std::streamoff kLogTailBytes = 16 * 1024;

// The data that the child needs between fork and exec. It is prepared before the fork, because only
// async-signal-safe calls are allowed there.
struct ExecPlan {
  const char* program;
  std::vector<char*> argv;         // ends with null
  std::vector<char*> environment;  // ends with null
  int log_fd;
  int null_fd;
  bool keeps_stderr;
  bool keeps_stdout;
  int inherited_fd;
  pid_t parent;
};

// Returns this process's variables, with the child's key and its own variables.
std::vector<std::string> EnvironmentWith(uint64_t key, std::vector<std::string> variables) {
  variables.push_back(fmt::format("{}={}", kProcessKeyVariable, HexText(key)));
  const auto is_set = [own = variables](std::string_view variable) {
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    return std::ranges::any_of(own, [&](const auto& other) { return other.starts_with(name); });
  };
  for (char** at = environ; *at != nullptr; ++at) {
    if (!is_set(*at)) variables.emplace_back(*at);
  }
  return variables;
}

[[noreturn]] void Exec(const ExecPlan& plan) {
  // A parent that died before this line cannot signal us any more.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(kExecFailed);
  setpgid(0, 0);  // the terminal's Ctrl-C reaches only the parent, which stops us in order
  // Handlers before the mask: a waiting signal must not run the parent's handler in the child.
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
  // These signals would end a program that does not handle them (yet): Slurm's notice to all
  // processes of a step, which the node passes on as SIGTERM, and a partition.
  for (int signal : {SIGUSR1, SIGUSR2}) ::signal(signal, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // A process outside the terminal's group may be stopped when it writes to the terminal.
  if (plan.keeps_stderr) ::signal(SIGTTOU, SIG_IGN);
  dup2(plan.null_fd, STDIN_FILENO);
  if (!plan.keeps_stdout) dup2(plan.log_fd, STDOUT_FILENO);
  if (!plan.keeps_stderr) dup2(plan.log_fd, STDERR_FILENO);
  if (plan.inherited_fd >= 0) fcntl(plan.inherited_fd, F_SETFD, 0);
  execve(plan.program, plan.argv.data(), plan.environment.data());
  _exit(kExecFailed);
}

int PollTimeout(ProcessGroup::TimePoint deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  constexpr int64_t kLongestMs = 3'600'000;  // the caller waits again
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, kLongestMs));
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("{}", signal) : fmt::format("SIG{}", name);
}

}  // namespace

ExitKind ProcessExit::kind() const {
  if (is_clean() || stop) return ExitKind::kLeft;
  if (is_injected) return ExitKind::kInjected;
  if (signal != 0) return signal == SIGKILL ? ExitKind::kKilled : ExitKind::kSignal;
  if (exit_code == kExitFailed) return ExitKind::kFailed;
  if (exit_code == kExitUnreached) return ExitKind::kUnreached;
  return exit_code == kExitMemberLost ? ExitKind::kMemberLost : ExitKind::kOther;
}

bool OomKills::Take(uint64_t count) {
  constexpr std::chrono::seconds kMemory{1};
  const auto now = std::chrono::steady_clock::now();
  if (now - counted_at_ > kMemory) open_ = 0;
  if (count > count_) {
    open_ += count - count_;
    count_ = count;
    counted_at_ = now;
  }
  if (open_ == 0) return false;
  --open_;
  return true;
}

ProcessGroup::ProcessGroup(OnExit on_exit) : on_exit_(std::move(on_exit)) {}

ProcessGroup::~ProcessGroup() {
  on_exit_ = [](const ProcessExit&) {};
  KillAll();
}

Status ProcessGroup::Start(const ProcessSpec& spec) {
  PANDO_CHECK(!IsRunning(spec.name));
  const std::string log_path = spec.log_path.empty() ? "/dev/null" : spec.log_path;
  UniqueFd log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                    ModeFor(log_path, FileAccess::kAsFolder)));
  if (!log.is_open()) return FileError("open the log", log_path, errno);
  UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null.is_open()) return FileError("open", "/dev/null", errno);
  std::vector<std::string> words{spec.program == ProcessSpec().program ? "pando" : spec.program};
  words.insert(words.end(), spec.args.begin(), spec.args.end());
  const uint64_t key = NewIncarnation().value();
  std::vector<std::string> variables = EnvironmentWith(key, spec.variables);
  ExecPlan plan{.program = spec.program.c_str(),
                .argv = {},
                .environment = {},
                .log_fd = log.get(),
                .null_fd = null.get(),
                .keeps_stderr = spec.keeps_stderr,
                .keeps_stdout = spec.keeps_stdout,
                .inherited_fd = spec.inherited_fd,
                .parent = getpid()};
  for (std::string& word : words) plan.argv.push_back(word.data());
  plan.argv.push_back(nullptr);
  for (std::string& variable : variables) plan.environment.push_back(variable.data());
  plan.environment.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) Exec(plan);
  if (pid < 0)
    return Internal(fmt::format("cannot start {}: {}", spec.title, std::strerror(errno)));
  return Adopt(spec, pid, key);
}

Status ProcessGroup::Adopt(const ProcessSpec& spec, pid_t pid, uint64_t key) {
  // By number, because glibc 2.36 declares pidfd_open() without C linkage.
  UniqueFd pid_fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pid_fd.is_open()) {  // too many open files: we would miss the child's end
    const int error = errno;
    kill(pid, SIGKILL);
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return Internal(fmt::format("cannot watch {}: {}; raise the limit of open files (ulimit -n)",
                                spec.title, std::strerror(error)));
  }
  children_.push_back({.spec = spec, .pid = pid, .key = key, .pid_fd = std::move(pid_fd)});
  return Status();
}

void ProcessGroup::BecomeReaper() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  is_reaper_ = true;
}

// Reaps orphans of a dead child. Our own children are reaped after their descriptor was seen.
void ProcessGroup::ReapOrphans() const {
  const auto is_ours = [this](pid_t pid) {
    return std::ranges::any_of(children_, [&](const Child& child) { return child.pid == pid; });
  };
  siginfo_t dead{};
  while (waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT) == 0 && dead.si_pid != 0 &&
         !is_ours(dead.si_pid)) {
    waitpid(dead.si_pid, nullptr, 0);
    dead = {};
  }
}

bool ProcessGroup::IsRunning(const std::string& name) const { return Pid(name).has_value(); }

const ProcessGroup::Child* ProcessGroup::Find(const std::string& name) const {
  const auto is_it = [&](const Child& child) { return child.spec.name == name; };
  const auto it = std::ranges::find_if(children_, is_it);
  return it == children_.end() ? nullptr : &*it;
}

std::optional<pid_t> ProcessGroup::Pid(const std::string& name) const {
  const Child* child = Find(name);
  return child != nullptr ? std::optional(child->pid) : std::nullopt;
}

uint64_t ProcessGroup::Key(const std::string& name) const {
  const Child* child = Find(name);
  return child != nullptr ? child->key : 0;
}

bool ProcessGroup::Wait(TimePoint deadline, std::span<const int> fds) {
  std::vector<pollfd> polled;
  for (const Child& child : children_) polled.push_back({child.pid_fd.get(), POLLIN, 0});
  for (int fd : fds) polled.push_back({fd, POLLIN, 0});
  int ready = 0;
  do {
    ready = poll(polled.data(), polled.size(), PollTimeout(deadline));
  } while (ready < 0 && errno == EINTR);
  // Remove the dead children first, because a callback may start others.
  std::vector<Child> dead;
  for (size_t i = children_.size(); i-- > 0;) {
    if (polled[i].revents == 0) continue;
    dead.push_back(std::move(children_[i]));
    children_.erase(children_.begin() + static_cast<ptrdiff_t>(i));
  }
  for (const Child& child : dead) Reap(child);
  if (is_reaper_) ReapOrphans();
  return ready > 0;
}

void ProcessGroup::Reap(const Child& child) {
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  ProcessExit exit{.spec = child.spec,
                   .pid = child.pid,
                   .key = child.key,
                   .time = std::chrono::system_clock::now()};
  if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
  if (WIFEXITED(status)) exit.exit_code = WEXITSTATUS(status);
  exit.is_out_of_memory = exit.signal == SIGKILL && oom_kills_.Take(ReadCgroup().oom_kill_count);
  on_exit_(exit);
}

void ProcessGroup::Signal(const std::string& name, int signal) {
  if (auto pid = Pid(name)) kill(*pid, signal);  // not reaped, so the id still belongs to the child
}

void ProcessGroup::SignalAll(int signal) {
  for (const Child& child : children_) kill(child.pid, signal);
}

void ProcessGroup::KillAll() {
  SignalAll(SIGKILL);
  while (!children_.empty()) Wait(TimePoint::max());
}

// ---- ends, as text ------------------------------------------------------------------------------

std::string ExitText(const ProcessExit& exit) {
  if (exit.restart_count > 0) {
    ProcessExit last = exit;
    last.restart_count = 0;
    return fmt::format(
        "{}, after {} restart{} within {} s: mend what {} shows, or raise "
        "--max-restarts",
        ExitText(last), exit.restart_count, exit.restart_count == 1 ? "" : "s",
        exit.restarts_within.count(),
        exit.spec.log_path.empty() ? "its output" : exit.spec.log_path);
  }
  if (exit.is_out_of_memory) {
    const std::optional<uint64_t> limit = ReadCgroup().memory_bytes;
    return fmt::format(
        "signal 9 (SIGKILL) by the memory limit{}: raise it, or use fewer workers or smaller "
        "micro-batches",
        limit ? fmt::format(" of {}", BytesText(*limit)) : "");
  }
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
