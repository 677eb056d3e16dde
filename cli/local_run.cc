#include "cli/local_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "cli/exit_codes.h"
#include "cli/launcher.h"
#include "cli/shutdown.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kScheduler = "scheduler";
// From the request to stop until the rest is killed: a second on the user's watch, with a margin.
constexpr std::chrono::milliseconds kStopGrace{800};
// For servers and workers to leave once the scheduler has ended the run.
constexpr std::chrono::milliseconds kLeaveGrace{2000};

// A folder for ipc sockets, whose paths may have 107 bytes at most, which run folders may exceed.
class SocketFolder {
 public:
  SocketFolder() {
    std::string path = (std::filesystem::temp_directory_path(error_) / "pando-XXXXXX").string();
    if (!error_ && mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~SocketFolder() {
    if (!path_.empty()) std::filesystem::remove_all(path_, error_);
  }
  SocketFolder(const SocketFolder&) = delete;
  const std::string& path() const { return path_; }  // empty where it could not be made

 private:
  std::error_code error_;
  std::string path_;
};

// Owns: every process of the run. Threads: none.
class LocalRun {
 public:
  explicit LocalRun(const LocalRunArgs& args)
      : args_(args), group_([this](const ProcessExit& exit) { OnExit(exit); }) {}
  int Run();

 private:
  Status StartScheduler();
  Status AwaitEndpoint();
  Status StartNodes();
  Status StartNode(const char* role, uint32_t rank, std::vector<std::string> args);
  void AwaitEnd();
  void Stop();
  void AwaitExits(Clock::time_point deadline);
  void OnExit(const ProcessExit& exit);
  int Conclude();
  std::string BindEndpoint(const std::string& name) const;
  bool IsOver() const {
    return root_cause_ || failure_ || scheduler_exit_ || shutdown_.first_signal();
  }

  const LocalRunArgs& args_;
  ShutdownSignal shutdown_;
  SocketFolder sockets_;
  ProcessGroup group_;
  UniqueFd endpoint_pipe_;  // the scheduler writes its endpoint and a newline
  std::string endpoint_;
  bool is_stopping_ = false;
  std::optional<ProcessExit> scheduler_exit_;
  std::optional<ProcessExit> root_cause_;
  std::optional<Status> failure_;
};

int LocalRun::Run() {
  for (auto phase : {&LocalRun::StartScheduler, &LocalRun::AwaitEndpoint, &LocalRun::StartNodes}) {
    if (Status s = (this->*phase)(); !s.ok()) failure_ = s;
    if (IsOver()) break;
  }
  AwaitEnd();
  Stop();
  return Conclude();
}

std::string LocalRun::BindEndpoint(const std::string& name) const {
  if (args_.job.transport == "ipc") return fmt::format("ipc://{}/{}", sockets_.path(), name);
  return "tcp://127.0.0.1:0";
}

Status LocalRun::StartScheduler() {
  if (args_.job.transport == "ipc" && sockets_.path().empty()) {
    return InvalidArgument(
        "cannot make a folder for sockets in the temporary folder; use --transport tcp");
  }
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return FileError("open", "a pipe", errno);
  endpoint_pipe_ = UniqueFd(ends[0]);
  const UniqueFd write_end(ends[1]);
  ProcessSpec spec{.name = kScheduler,
                   .title = kScheduler,
                   .args = {"scheduler", args_.folder.JobPath(), "--bind", BindEndpoint(kScheduler),
                            "--prepared-run-dir", args_.folder.path(), "--endpoint-file",
                            fmt::format("/dev/fd/{}", write_end.get())},
                   .log_path = args_.folder.LogPath(kScheduler),
                   .keeps_stderr = true,
                   .program = args_.program,
                   .inherited_fd = write_end.get()};
  if (args_.is_verbose) spec.args.push_back("-v");
  return group_.Start(spec);
}

Status LocalRun::AwaitEndpoint() {
  const auto deadline = Clock::now() + std::chrono::milliseconds(args_.job.start_timeout_ms);
  const std::array fds{endpoint_pipe_.get(), shutdown_.fd()};
  fcntl(endpoint_pipe_.get(), F_SETFL, O_NONBLOCK);
  while (!IsOver() && !endpoint_.ends_with('\n')) {
    if (!group_.Wait(deadline, fds)) {
      return Unavailable(fmt::format("the scheduler did not listen within {} ms; its log is {}",
                                     args_.job.start_timeout_ms, args_.folder.LogPath(kScheduler)));
    }
    shutdown_.Take();
    std::array<char, 256> bytes{};
    const ssize_t count = read(endpoint_pipe_.get(), bytes.data(), bytes.size());
    if (count > 0) endpoint_.append(bytes.data(), static_cast<size_t>(count));
  }
  if (endpoint_.ends_with('\n')) endpoint_.pop_back();
  return Status();
}

Status LocalRun::StartNodes() {
  for (uint32_t rank = 0; rank < args_.job.servers; ++rank) {
    Status s = StartNode("server", rank,
                         {"--bind", BindEndpoint(fmt::format("server-{}", rank)), "--lanes",
                          fmt::format("{}", args_.job.lanes)});
    if (!s.ok()) return s;
  }
  for (uint32_t rank = 0; rank < args_.job.workers; ++rank) {
    if (Status s = StartNode("worker", rank, {}); !s.ok()) return s;
  }
  return Status();
}

Status LocalRun::StartNode(const char* role, uint32_t rank, std::vector<std::string> extra) {
  const std::string name = fmt::format("{}-{}", role, rank);
  ProcessSpec spec{.name = name,
                   .title = fmt::format("{} {}", role, rank),
                   .args = {role, "--join", endpoint_, "--start-timeout",
                            fmt::format("{}", args_.job.start_timeout_ms / 1000.0)},
                   .log_path = args_.folder.LogPath(name),
                   .program = args_.program};
  spec.args.insert(spec.args.end(), extra.begin(), extra.end());
  if (args_.is_verbose) spec.args.push_back("-v");
  return group_.Start(spec);
}

void LocalRun::AwaitEnd() {
  const std::array fds{shutdown_.fd()};
  while (!IsOver()) {
    group_.Wait(Clock::time_point::max(), fds);
    shutdown_.Take();
  }
}

// A node that leaves in peace is no event: it was told to. What happens while stopping is our
// doing.
void LocalRun::OnExit(const ProcessExit& exit) {
  const bool is_scheduler = exit.spec.name == kScheduler;
  if (is_scheduler) scheduler_exit_ = exit;
  const bool was_interrupted =
      is_scheduler && exit.signal == 0 && exit.exit_code == kExitInterrupted;
  if (is_stopping_ || exit.is_clean() || was_interrupted || root_cause_) return;
  root_cause_ = exit;
}

void LocalRun::Stop() {
  const bool has_ended_well = scheduler_exit_ && scheduler_exit_->is_clean() && !root_cause_;
  if (has_ended_well) {
    AwaitExits(Clock::now() + kLeaveGrace);
  } else {
    is_stopping_ = true;
    // The scheduler tells the others: told directly, they would look to it like the culprits.
    if (scheduler_exit_) {
      group_.SignalAll(SIGTERM);
    } else {
      group_.Signal(kScheduler, SIGTERM);
    }
    AwaitExits(Clock::now() + kStopGrace);
  }
  is_stopping_ = true;
  group_.KillAll();
}

// Until all have left; another Ctrl-C, or a death among those that should leave in peace, ends the
// wait.
void LocalRun::AwaitExits(Clock::time_point deadline) {
  const std::array fds{shutdown_.fd()};
  while (group_.running_count() > 0 && (is_stopping_ || !root_cause_)) {
    if (!group_.Wait(deadline, fds) || shutdown_.Take() != 0) return;
  }
}

// The scheduler has written the summary where it could; only this process knows how it all ended.
int LocalRun::Conclude() {
  Result<Summary> written = args_.folder.ReadSummary();
  Summary summary = written.ok() ? *written : SummaryOf(args_.job);
  int exit_code = kExitFailed;
  if (root_cause_) {
    fmt::print(stderr, "\n{}", RootCauseText(*root_cause_));
    summary.status = kStatusFailed;
    // What the scheduler wrote before it failed says more than its exit code; of another's death
    // it knows no better than this process.
    if (summary.failure.empty() || root_cause_->spec.name != kScheduler) {
      summary.failure = fmt::format("{}: {}", root_cause_->spec.title, ExitText(*root_cause_));
    }
    const bool has_code = root_cause_->spec.name == kScheduler && root_cause_->signal == 0;
    exit_code = has_code ? root_cause_->exit_code : kExitFailed;
  } else if (failure_) {
    fmt::print(stderr, "pando: {}\n", failure_->message());
    summary.status = kStatusFailed;
    summary.failure = failure_->message();
    exit_code = ExitCodeOf(*failure_);
  } else if (scheduler_exit_ && scheduler_exit_->is_clean() && written.ok()) {
    return kExitCompleted;
  } else if (shutdown_.first_signal() != 0 || (scheduler_exit_ && !scheduler_exit_->is_clean())) {
    summary.status = kStatusInterrupted;
    exit_code = kExitInterrupted;
  } else {
    summary.failure = fmt::format("the scheduler left no summary: {}", written.status().message());
  }
  if (Status s = args_.folder.WriteSummary(summary); !s.ok())
    fmt::print(stderr, "pando: {}\n", s.message());
  return exit_code;
}

}  // namespace

int RunLocal(const LocalRunArgs& args) { return LocalRun(args).Run(); }

}  // namespace pando
