#include "node/programs/scripts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "common/exit_codes.h"
#include "common/output.h"
#include "run/run_folder.h"
#include "run/run_lock.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

// How often a script is restarted after the run, if signals end it.
constexpr uint32_t kLateStartsMax = 3;
// The time from a request to end until the remaining scripts are killed.
constexpr std::chrono::milliseconds kEndGrace{800};

}  // namespace

void Scripts::Show(ShownLogs shown, uint32_t count) {
  std::vector<LogFollower::Log> logs;
  const uint32_t shown_count = shown == ShownLogs::kNone ? 0 : shown == ShownLogs::kAll ? count : 1;
  for (uint32_t rank = 0; rank < std::min(count, shown_count); ++rank) {
    logs.push_back({fmt::format("worker {}", rank),
                    RunFolder::Open(run_dir_).LogPath(fmt::format("worker-{}", rank))});
  }
  if (!logs.empty()) logs_.emplace(std::move(logs));
}

Status Scripts::Start(const ProcessSpec& spec) {
  scripts_[spec.name].spec = spec;
  return supervisor_.Start(spec, Role::kWorker);
}

bool Scripts::HaveAllEnded() const {
  const auto has_ended = [](const auto& entry) { return entry.second.has_ended; };
  return !scripts_.empty() && std::ranges::all_of(scripts_, has_ended);
}

void Scripts::OnExit(const ProcessExit& exit, bool is_completed) {
  const auto it = scripts_.find(exit.spec.name);
  if (it == scripts_.end()) return;
  Script& script = it->second;
  // An interruption is not the script's decision: it did not see the end of the run.
  const bool is_own_end = is_completed && exit.signal == 0 && exit.exit_code != kExitInterrupted;
  const bool is_late = exit.is_late_failure() || script.late_starts > 0 || is_own_end;
  if (is_late && exit.exit_code == kExitNextRun) {
    needs_next_run_ = script.has_ended = true;
    return;
  }
  // A signal other than SIGKILL may mean a fault of the script, which would come again.
  const bool is_over =
      exit.signal != SIGKILL || exit.is_out_of_memory || script.late_starts == kLateStartsMax;
  if (is_late && is_over && !exit.is_clean() && !failure_ && !is_cut_short_) failure_ = exit;
  script.has_ended |= exit.is_clean() || (is_late && is_over);
}

void Scripts::AwaitEnds(ShutdownSignal& shutdown) {
  EndHanging();
  // `pando stop` asks the holder of the lock to end the scripts.
  const Result<RunLock> lock = RunLock::Acquire(run_dir_);
  bool has_told = false;
  while (shutdown.first_signal() == 0) {
    if (Status status = RestartDead(); !status.ok()) Say("pando: {}\n", status.message());
    if (supervisor_.running_count() == 0) return;
    if (!std::exchange(has_told, true)) {
      Say("pando: the run is completed; waiting for the scripts of {}, which go on after their "
          "loop "
          "(Ctrl-C or pando stop {} ends them)\n",
          fmt::join(supervisor_.Running(), ", "), run_dir_);
    }
    supervisor_.Wait(Clock::time_point::max(), std::array{shutdown.fd()});
    shutdown.Take();
  }
  is_cut_short_ = true;
  Say("pando: ending the scripts; the run is completed, and its weights are in {}\n", run_dir_);
  supervisor_.SignalAll(SIGINT);
  supervisor_.AwaitExits(shutdown, Clock::now() + kEndGrace);
}

// Kills processes that sent no notice: they hang, or were joining again.
void Scripts::EndHanging() {
  const std::set<std::string> left = supervisor_.RunningAfterEnd();
  std::set<std::string> hanging = supervisor_.Running();
  std::erase_if(hanging, [&](const std::string& name) { return left.contains(name); });
  for (const std::string& name : hanging) supervisor_.Signal(name, SIGKILL);
  const auto is_running = [&](const std::string& name) {
    return supervisor_.Running().contains(name);
  };
  while (std::ranges::any_of(hanging, is_running)) supervisor_.Wait(Clock::time_point::max());
}

Status Scripts::RestartDead() {
  for (auto& [name, script] : scripts_) {
    if (script.has_ended || supervisor_.Running().contains(name)) continue;
    Say("pando: starting the script of {} again, for what follows its loop\n", script.spec.title);
    if (++script.late_starts == 1) {
      script.spec.variables.push_back("PANDO_COMPLETED_RUN=" +
                                      std::filesystem::absolute(run_dir_).string());
    }
    PANDO_RETURN_IF_ERROR(supervisor_.Start(script.spec, Role::kWorker));
  }
  return Status();
}

std::optional<int> Scripts::Conclude() const {
  if (failure_) {
    Say("\n{}pando: the run is completed, and its weights are in {}; after its loop the script of "
        "{} ended with {}\n",
        RootCauseText(*failure_), run_dir_, failure_->spec.title, ExitText(*failure_));
    return failure_->signal == 0 ? failure_->exit_code : kExitFailed;
  }
  if (is_cut_short_) return kExitInterrupted;
  return needs_next_run_ ? std::optional(kExitNextRun) : std::nullopt;
}

}  // namespace pando
