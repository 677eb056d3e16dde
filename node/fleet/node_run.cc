// Runs `pando node`: the processes of one machine of a cluster.

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "common/atomic_file.h"
#include "common/cgroup.h"
#include "common/clock.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "job/device_choice.h"
#include "node/fleet/fleet.h"
#include "node/processes.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kCoresPerWorker = 8;

// NodeRun runs and owns the processes of this machine. Threads: its own and the link's.
class NodeRun {
 public:
  explicit NodeRun(const NodeArgs& args)
      : args_(args),
        service_(args.manager),
        fleet_(args, Fleet::Kind::kNode, [this](const auto& exit, AfterExit) { OnExit(exit); }) {}
  int Run();

 private:
  Status StartAll();
  void AwaitEnd();
  int Conclude(bool was_cut_short) const;
  int WaitOnce();
  void Drain();
  void OnExit(const ProcessExit& exit);

  const NodeArgs& args_;
  ServiceNotice service_;
  std::string failure_;                      // the run's failure, as a process has reported it
  std::optional<ProcessExit> late_failure_;  // the first script that failed after the run
  Fleet fleet_;
  ShutdownSignal& shutdown_ = fleet_.shutdown();
  Supervisor& supervisor_ = fleet_.supervisor();
};

int NodeRun::Run() {
  Status status = fleet_.Link(args_.join, /*poll_interval=*/kNever, args_.keys);
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
  if (const std::optional<ProcessExit>& cause = supervisor_.root_cause()) {
    Say("\n{}", RootCauseText(*cause));
    const bool is_script = fleet_.FindRole(cause->spec.name) == ExitRole::kNodeScript;
    return cause->kind() == ExitKind::kUnreached && !is_script ? kExitUnreached : kExitFailed;
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
  std::vector<std::string> member_flags;
  if (args_.insecure) member_flags.emplace_back("--insecure");
  for (const std::string& label : args_.labels)
    member_flags.insert(member_flags.end(), {"--label", label});
  for (uint32_t i = 0; i < args_.server_count; ++i) {
    std::vector<std::string> extra{"--lanes", fmt::format("{}", args_.lanes)};
    if (!args_.bind.empty())
      extra.insert(extra.end(),
                   {"--bind", is_ipc ? fmt::format("{}-{}", args_.bind, i) : args_.bind});
    extra.insert(extra.end(), member_flags.begin(), member_flags.end());
    PANDO_RETURN_IF_ERROR(fleet_.Start(Role::kServer, i, extra));
  }
  if (args_.worker.is_preloaded) PANDO_RETURN_IF_ERROR(fleet_.StartPreloaded());
  for (uint32_t i = 0; i < share.worker_count; ++i) {
    std::vector<std::string> extra{"--threads", fmt::format("{}", share.threads), "--device",
                                   DeviceOfWorker(choice, gpu_count, i)};
    if (!args_.data_path.empty()) extra.insert(extra.end(), {"--data", args_.data_path});
    if (!args_.data_cache.empty()) extra.insert(extra.end(), {"--data-cache", args_.data_cache});
    extra.insert(extra.end(), member_flags.begin(), member_flags.end());
    if (!args_.worker_bind.empty()) extra.insert(extra.end(), {"--bind", args_.worker_bind});
    PANDO_RETURN_IF_ERROR(fleet_.Start(Role::kWorker, i, extra));
  }
  return Status();
}

// A process that cannot be kept running does not end the others, which go on to the run's end.
void NodeRun::AwaitEnd() {
  bool has_told = false;
  bool has_begun = false;
  service_.SendReady("waiting for the run to begin, for the scheduler at " + args_.join);
  while (supervisor_.kept_count() > 0 && supervisor_.start_status().ok() &&
         shutdown_.first_signal() == 0) {
    WaitOnce();
    if (!has_begun && fleet_.progress().has_begun) {
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
  while (supervisor_.running_count() > 0) {
    if (WaitOnce() != 0) return;
  }
}

int NodeRun::WaitOnce() {
  const Micros interval = service_.feed_interval();
  const int signal =
      fleet_.Wait(interval == kNever ? Clock::time_point::max() : Clock::now() + interval);
  service_.Feed(SteadyNow());
  return signal;
}

void NodeRun::OnExit(const ProcessExit& exit) {
  if (exit.stop && exit.stop->reason == StopReason::kFailed) failure_ = exit.stop->text;
  if (exit.is_late_failure() && shutdown_.first_signal() == 0 && !late_failure_)
    late_failure_ = exit;
  if (exit.is_clean() || (exit.stop && !exit.is_late_failure())) {
    spdlog::info("{} has left", exit.spec.title);
  } else {
    spdlog::warn("{} (process {}) ended with {}", exit.spec.title, exit.pid, ExitText(exit));
  }
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
