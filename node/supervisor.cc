#include "node/supervisor.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <utility>

#include "common/atomic_file.h"
#include "common/exit_codes.h"
#include "common/hash.h"
#include "common/system.h"
#include "common/text.h"
#include "node/programs/program_process.h"
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

using Clock = std::chrono::steady_clock;

uint64_t CountMicros(ProcessGroup::TimePoint time) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count());
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
  const auto now = Clock::now();
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

std::optional<RestartPolicy::TimePoint> RestartPolicy::OnDeath(TimePoint now, ExitKind kind) {
  const bool is_unreached = kind == ExitKind::kUnreached;
  const auto life = is_unreached ? TimePoint::duration::zero() : now - started_at_;
  if (life >= kCalmLife) pause_ = kPauseMin;
  if (life >= kGoodLife) death_count_ = 0;
  if (kind == ExitKind::kInjected) return now + kPauseMin;
  if (death_count_ >= restarts_max_) return std::nullopt;
  if (death_count_++ == 0) first_death_at_ = now;
  return now + std::exchange(pause_, std::min(2 * pause_, kPauseMax));
}

Supervisor::Supervisor(Options options)
    : options_(std::move(options)), group_([this](const ProcessExit& exit) { OnExit(exit); }) {}

Supervisor::~Supervisor() = default;

Status Supervisor::StartPreloaded(const ProcessSpec& spec) {
  preload_ = std::make_unique<Preload>(group_, spec);
  return preload_->Start();
}

Status Supervisor::StartLife(const ProcessSpec& spec) {
  ProcessSpec told = spec;
  told.variables.push_back(notices_.variable());
  return preload_ && told.is_forked ? preload_->StartWorker(told) : group_.Start(told);
}

Status Supervisor::Start(const ProcessSpec& spec, Role role) {
  PANDO_RETURN_IF_ERROR(StartLife(spec));
  Kept kept{.spec = spec, .role = role, .policy = RestartPolicy(options_.restarts_max)};
  kept.policy.OnStart(Clock::now());
  kept_.insert_or_assign(spec.name, std::move(kept));
  return Status();
}

void Supervisor::SetSpec(const ProcessSpec& spec) { kept_.at(spec.name).spec = spec; }

bool Supervisor::Wait(TimePoint deadline, std::span<const int> fds) {
  std::vector<int> watched(fds.begin(), fds.end());
  watched.push_back(notices_.fd());
  if (preload_) watched.push_back(preload_->fd());
  const bool has_happened = group_.Wait(std::min(deadline, NextDue()), watched);
  notices_.Take();
  RunDue(Clock::now());
  return has_happened || Clock::now() < deadline;
}

void Supervisor::AwaitExits(ShutdownSignal& shutdown, TimePoint deadline, const std::string& name) {
  const std::array fds{shutdown.fd()};
  while (name.empty() ? running_count() > 0 : group_.IsRunning(name)) {
    if (!Wait(deadline, fds) || shutdown.Take() != 0) return;
  }
}

Supervisor::TimePoint Supervisor::NextDue() const {
  TimePoint next = preload_ ? preload_->next_due() : TimePoint::max();
  for (const auto& [name, kept] : kept_) {
    next = std::min({next, kept.restart_at.value_or(next), kept.resume_at.value_or(next)});
  }
  return next;
}

void Supervisor::NoteStart(Status status) {
  if (!status.ok() && start_status_.ok()) start_status_ = std::move(status);
}

void Supervisor::RunDue(TimePoint now) {
  if (preload_) NoteStart(preload_->Look(now));
  for (auto& [name, kept] : kept_) {
    if (kept.resume_at && now >= *kept.resume_at) {
      kept.resume_at.reset();
      group_.Signal(name, SIGCONT);
    }
    if (!kept.restart_at || now < *kept.restart_at || is_retired_) continue;
    kept.restart_at.reset();
    kept.policy.OnStart(now);
    NoteStart(StartLife(kept.spec));
  }
}

void Supervisor::OnExit(ProcessExit exit) {
  if (preload_ && preload_->OnExit(exit)) return;
  notices_.Take();
  exit.stop = notices_.Find(exit.key);
  const auto it = kept_.find(exit.spec.name);
  PANDO_CHECK(it != kept_.end());
  exit.is_injected = it->second.killed_us != 0 && exit.signal == SIGKILL;
  const AfterExit next = options_.on_exit(exit);
  if (is_retired_ || next == AfterExit::kIgnore) {
    kept_.erase(it);
    return;
  }
  TellDeath(it->second, exit);
  Bury(std::move(exit), next);
}

void Supervisor::Bury(ProcessExit exit, AfterExit next) {
  Kept& kept = kept_.at(exit.spec.name);
  kept.killed_us = 0;
  kept.resume_at.reset();
  const TimePoint now = Clock::now();
  const bool may_restart = next == AfterExit::kRestart;
  if (may_restart) kept.restart_at = kept.policy.OnDeath(now, exit.kind());
  if (kept.restart_at) {
    if (options_.on_restart) options_.on_restart(exit);
    return;
  }
  if (may_restart) exit.restart_count = kept.policy.restart_count();
  exit.restarts_within =
      std::chrono::ceil<std::chrono::seconds>(now - kept.policy.first_death_at());
  kept_.erase(exit.spec.name);
  if (!root_cause_) root_cause_ = std::move(exit);
}

void Supervisor::TellDeath(const Kept& kept, const ProcessExit& exit) {
  if (!options_.on_fault) return;
  FaultNote note = MakeNote(kept, exit.pid, exit.key);
  note.action = kept.killed_us != 0 ? EnumName(ChaosAction::kKill) : "exit";
  note.injected_us = kept.killed_us;
  note.exited_us = CountMicros(Clock::now());
  note.text = ExitText(exit);
  options_.on_fault(std::move(note));
}

FaultNote Supervisor::MakeNote(const Kept& kept, pid_t pid, uint64_t key) const {
  return {.role = kept.role,
          .host = HostName(),
          .process_id = static_cast<uint32_t>(pid),
          .target = kept.spec.title,
          .process_key = key};
}

void Supervisor::Inject(const ChaosAct& act) {
  const auto it = kept_.find(act.process);
  const std::optional<pid_t> pid = group_.Pid(act.process);
  if (it == kept_.end() || !pid) return;
  Kept& kept = it->second;
  const TimePoint now = Clock::now();
  if (act.action == ChaosAction::kKill) {
    kept.killed_us = CountMicros(now);  // reported with its end, which comes soon
    group_.Signal(act.process, SIGKILL);
    return;
  }
  FaultNote note = MakeNote(kept, *pid, group_.Key(act.process));
  note.action = EnumName(act.action);
  note.injected_us = CountMicros(now);
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(act.duration);
  note.text = fmt::format("for {} ms", ms.count());
  if (act.action == ChaosAction::kStop) {
    group_.Signal(act.process, SIGSTOP);
    kept.resume_at = now + act.duration;
  } else {
    sigqueue(*pid, SIGUSR2, {.sival_int = static_cast<int>(ms.count())});
  }
  if (options_.on_fault) options_.on_fault(std::move(note));
}

void Supervisor::Retire() {
  is_retired_ = true;
  if (preload_) preload_->Retire();
  std::erase_if(kept_, [](const auto& entry) { return entry.second.restart_at.has_value(); });
  group_.SignalAll(SIGCONT);
}

std::set<std::string> Supervisor::RunningAfterEnd() const {
  std::set<std::string> names = Running();
  std::erase_if(names, [this](const auto& name) { return !notices_.Find(group_.Key(name)); });
  return names;
}

std::set<std::string> Supervisor::Running() const {
  std::set<std::string> names;
  for (const auto& [name, kept] : kept_) {
    if (group_.IsRunning(name)) names.insert(name);
  }
  return names;
}

}  // namespace pando
