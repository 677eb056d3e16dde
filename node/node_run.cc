// `pando node`: the processes of one machine of a cluster.

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "common/cgroup.h"
#include "common/clock.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "job/device_choice.h"
#include "node/processes.h"
#include "node/scheduler_link.h"
#include "node/shutdown_signal.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kCoresPerWorker = 8;
// How long the node restarts processes that do not reach the scheduler.
constexpr std::chrono::minutes kSchedulerPatience(10);

// Owns: every process of this machine. Threads: its own and the link's.
class NodeRun {
 public:
  explicit NodeRun(const NodeArgs& args)
      : args_(args),
        service_(args.manager),
        link_(args.join, /*poll_interval=*/kNever, args.keys),
        supervisor_(
            {.restarts_max = args.restarts_max,
             .on_fault = [this](FaultNote note) { link_.Tell(std::move(note)); },
             .on_exit = [this](const ProcessExit& exit) { OnExit(exit); },
             .has_left = [this](const ProcessExit& exit) { return HasLeft(exit); },
             .may_restart = [this](const ProcessExit& exit) { return MayRestart(exit); },
             .on_restart =
                 [](const ProcessExit& exit) { spdlog::info("restarting {}", exit.spec.title); }}) {
  }
  int Run();

 private:
  Status StartAll();
  Status Preload();
  Status Start(Role role, uint32_t index, const std::vector<std::string>& extra);
  std::string LogPath(const std::string& name) const;
  void AwaitEnd();
  int Conclude(bool was_cut_short) const;
  void WaitOnce(std::span<const int> fds);
  void Drain();
  void OnExit(const ProcessExit& exit);
  bool HasLeft(const ProcessExit& exit) const;
  bool IsUnreached(const ProcessExit& exit) const;
  bool MayRestart(const ProcessExit& exit);
  bool MayComeBack(Clock::time_point now);

  const NodeArgs& args_;
  ShutdownSignal shutdown_;
  ServiceNotice service_;
  SchedulerLink link_;
  bool has_one_left_ = false;                // in order: the run is over, or over for that one
  std::string failure_;                      // the run's, as a process has reported it
  std::optional<ProcessExit> late_failure_;  // the first of a script's own work after the run
  RepeatedDeaths deaths_;
  std::optional<Clock::time_point> unreached_since_;
  Clock::time_point unreached_at_;
  Supervisor supervisor_;
};

int NodeRun::Run() {
  Status status = link_.Start();
  if (status.ok()) status = StartAll();
  if (status.ok()) AwaitEnd();
  if (status.ok()) status = supervisor_.start_status();
  const bool is_asked = shutdown_.first_signal() != 0;
  if (is_asked || !status.ok()) {
    spdlog::info("draining {} processes; {} kills them", supervisor_.running_count(),
                 is_asked ? "once more" : "Ctrl-C");
    Drain();
  }
  const bool was_cut_short = supervisor_.running_count() > 0;
  supervisor_.KillAll();
  if (!status.ok()) spdlog::error("{}", status.message());
  return status.ok() ? Conclude(is_asked && was_cut_short) : ExitCodeFor(status);
}

int NodeRun::Conclude(bool was_cut_short) const {
  if (supervisor_.root_cause()) {
    Say("\n{}", RootCauseText(*supervisor_.root_cause()));
    return IsUnreached(*supervisor_.root_cause()) ? kExitUnreached : kExitFailed;
  }
  if (!failure_.empty()) {
    spdlog::error("the run has failed: {}", failure_);
    return kExitFailed;
  }
  if (was_cut_short) return kExitInterrupted;
  if (late_failure_) {
    Say("\n{}", RootCauseText(*late_failure_));
    spdlog::error("the run is completed; after its loop the script of {} ended with {}",
                  late_failure_->spec.title, ExitText(*late_failure_));
    return late_failure_->signal == 0 ? late_failure_->exit_code : kExitFailed;
  }
  spdlog::info("all processes of this machine have left");
  return kExitCompleted;
}

Status NodeRun::StartAll() {
  if (!args_.log_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(args_.log_dir, error);
    if (error) return FileError("create", args_.log_dir, error.value());
  }
  PANDO_ASSIGN_OR_RETURN(DeviceChoice choice, ParseDevice("--device", args_.device));
  const uint32_t gpu_count = CountGpus(choice);
  const NodeWorkers share = ChooseShare(args_, UsableCores(), GpusFor(choice, gpu_count));
  spdlog::info("starting {} servers and {} workers{}, for the scheduler at {}", args_.server_count,
               share.worker_count,
               share.threads == 0 ? "" : fmt::format(" of {} threads", share.threads), args_.join);
  const bool is_ipc = args_.bind.starts_with("ipc://");
  for (uint32_t i = 0; i < args_.server_count; ++i) {
    std::vector<std::string> extra{"--lanes", fmt::format("{}", args_.lanes)};
    if (!args_.bind.empty())
      extra.insert(extra.end(),
                   {"--bind", is_ipc ? fmt::format("{}-{}", args_.bind, i) : args_.bind});
    if (args_.insecure) extra.emplace_back("--insecure");
    for (const std::string& label : args_.labels) extra.insert(extra.end(), {"--label", label});
    PANDO_RETURN_IF_ERROR(Start(Role::kServer, i, extra));
  }
  if (args_.worker.is_preloaded) PANDO_RETURN_IF_ERROR(Preload());
  for (uint32_t i = 0; i < share.worker_count; ++i) {
    std::vector<std::string> extra{"--threads", fmt::format("{}", share.threads), "--device",
                                   DeviceOfWorker(choice, gpu_count, i)};
    if (!args_.data_path.empty()) extra.insert(extra.end(), {"--data", args_.data_path});
    if (!args_.data_cache.empty()) extra.insert(extra.end(), {"--data-cache", args_.data_cache});
    PANDO_RETURN_IF_ERROR(Start(Role::kWorker, i, extra));
  }
  return Status();
}

Status NodeRun::Preload() {
  const bool has_no_log = args_.log_dir.empty();
  return supervisor_.StartPreloaded(
      PreloadedSpec(args_.worker, {.log_path = LogPath(kPreloadedName),
                                   .keeps_stderr = has_no_log,
                                   .keeps_stdout = has_no_log,
                                   .variables = KeysVariables(args_.keys)}));
}

std::string NodeRun::LogPath(const std::string& name) const {
  return args_.log_dir.empty() ? "" : fmt::format("{}/{}.log", args_.log_dir, name);
}

Status NodeRun::Start(Role role, uint32_t index, const std::vector<std::string>& extra) {
  const char* word = EnumName(role);
  const std::string name = fmt::format("{}-{}", word, index);
  ProcessSpec spec{
      .name = name,
      .title = fmt::format("local {} {}", word, index),  // the scheduler numbers those of all nodes
      .args = {word, "--join", args_.join, "--start-timeout",
               fmt::format("{}", args_.start_timeout_ms / 1000.0)},
      .log_path = LogPath(name),
      .keeps_stderr = args_.log_dir.empty(),
      .variables = KeysVariables(args_.keys)};
  spec.args.insert(spec.args.end(), extra.begin(), extra.end());
  if (args_.is_verbose) spec.args.push_back("-v");
  if (role == Role::kWorker && !args_.worker.command.empty()) {
    spec.keeps_stdout = args_.log_dir.empty();
    RunProgram(args_.worker, args_.join, std::nullopt, &spec);
  }
  return supervisor_.Start(spec, role);
}

// A process that cannot be kept running does not end the others, which go on to the run's end.
void NodeRun::AwaitEnd() {
  const std::array fds{shutdown_.fd(), link_.fd()};
  bool has_told = false;
  bool has_begun = false;
  service_.SendReady("waiting for the run to begin, for the scheduler at " + args_.join);
  while (supervisor_.kept_count() > 0 && supervisor_.start_status().ok() &&
         shutdown_.first_signal() == 0) {
    WaitOnce(fds);
    shutdown_.Take();
    link_.Clear();
    if (!has_begun && link_.progress().has_begun) {
      has_begun = true;
      service_.SendStatus(fmt::format("{} processes train", supervisor_.running_count()));
    }
    if (!supervisor_.root_cause() || std::exchange(has_told, true)) continue;
    const ProcessExit& cause = *supervisor_.root_cause();
    spdlog::error("not restarting {} ({}); the others continue", cause.spec.title, ExitText(cause));
  }
}

// Waits until all have handed their work over; another signal ends the wait.
void NodeRun::Drain() {
  service_.SendStopping();
  supervisor_.Retire();
  supervisor_.SignalAll(SIGTERM);
  const std::array fds{shutdown_.fd()};
  while (supervisor_.running_count() > 0) {
    WaitOnce(fds);
    if (shutdown_.Take() != 0) return;
  }
}

void NodeRun::WaitOnce(std::span<const int> fds) {
  const Micros interval = service_.feed_interval();
  supervisor_.Wait(interval == kNever ? Clock::time_point::max() : Clock::now() + interval, fds);
  service_.Feed(SteadyNow());
}

void NodeRun::OnExit(const ProcessExit& exit) {
  if (!exit.stop) deaths_.OnExit(exit, link_);
  has_one_left_ |= exit.is_clean() || exit.stop;
  if (exit.stop && exit.stop->reason == StopReason::kFailed) failure_ = exit.stop->text;
  if (exit.is_late_failure() && shutdown_.first_signal() == 0 && !late_failure_)
    late_failure_ = exit;
  if (exit.is_clean() || (exit.stop && !exit.is_late_failure())) {
    spdlog::info("{} has left", exit.spec.title);
  } else {
    spdlog::warn("{} (process {}) ended with {}", exit.spec.title, exit.pid, ExitText(exit));
  }
}

// A process that restarts after the run ended exits.
bool NodeRun::HasLeft(const ProcessExit& exit) const { return has_one_left_ && IsUnreached(exit); }

// A script's exit codes have no such meaning.
bool NodeRun::IsUnreached(const ProcessExit& exit) const {
  const bool is_script = exit.spec.name.starts_with("worker-") && !args_.worker.command.empty();
  return !is_script && exit.signal == 0 && exit.exit_code == kExitUnreached;
}

// A bad flag and a refusal never change, nor does a scheduler that never existed: the process has
// waited for it. Once the run has begun, the scheduler may come back.
bool NodeRun::MayRestart(const ProcessExit& exit) {
  if (deaths_.AreHopeless(exit.spec.name)) return false;
  if (exit.signal != 0 || exit.exit_code == kExitFailed) return true;
  return IsUnreached(exit) && link_.progress().has_begun && MayComeBack(Clock::now());
}

// Processes that wait for an absent scheduler exit one soon after another.
bool NodeRun::MayComeBack(Clock::time_point now) {
  const Clock::duration wait =
      std::chrono::milliseconds(args_.start_timeout_ms) + RestartPolicy::kPauseMax;
  if (!unreached_since_ || now - unreached_at_ > 2 * wait) unreached_since_ = now;
  unreached_at_ = now;
  return now - *unreached_since_ < std::max<Clock::duration>(kSchedulerPatience, 2 * wait);
}

}  // namespace

NodeWorkers ChooseShare(const NodeArgs& args, uint32_t core_count, uint32_t gpu_count) {
  const uint32_t cores = std::max(core_count, 1u);
  if (args.worker_count) return {*args.worker_count, args.threads};
  if (gpu_count > 0) return {gpu_count, args.threads};
  const uint32_t per_worker = args.threads == 0 ? kCoresPerWorker : args.threads;
  const uint32_t count = std::max(cores / per_worker, 1u);
  return {count, args.threads == 0 ? std::max(cores / count, 1u) : args.threads};
}

int RunNode(const NodeArgs& args) { return NodeRun(args).Run(); }

}  // namespace pando
