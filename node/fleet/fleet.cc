#include "node/fleet/fleet.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/output.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

// How long a node restarts processes that do not reach the scheduler.
constexpr std::chrono::minutes kSchedulerPatience(10);

}  // namespace

Fleet::Fleet(const FleetArgs& args, Kind kind, OnExit on_exit)
    : args_(args),
      kind_(kind),
      on_exit_(std::move(on_exit)),
      supervisor_({.restarts_max = args.restarts_max,
                   .on_fault =
                       [this](FaultNote note) {
                         if (link_) link_->Tell(std::move(note));
                       },
                   .on_exit = [this](const ProcessExit& exit) { return Decide(exit); },
                   .on_restart = [this](const ProcessExit& exit) { PrepareRestart(exit); }}) {}

// The process will look for the schedulers that the link knows by now. In a run on one machine the
// scheduler reports the deaths of members.
void Fleet::PrepareRestart(const ProcessExit& exit) {
  const auto spec = specs_.find(exit.spec.name);
  if (spec != specs_.end()) supervisor_.SetSpec(spec->second());
  if (kind_ == Kind::kNode) return spdlog::info("restarting {}", exit.spec.title);
  if (exit.spec.name == kSchedulerName)
    Say("pando: the scheduler ended with {}; restarting it\n", ExitText(exit));
}

Status Fleet::Link(const std::string& endpoint, Micros poll_interval, const Keys& keys) {
  keys_ = keys;
  link_ = std::make_unique<SchedulerLink>(endpoint, poll_interval, keys);
  return link_->Start();
}

std::string Fleet::LogPath(const std::string& name) const {
  return args_.log_dir.empty() ? "" : fmt::format("{}/{}.log", args_.log_dir, name);
}

Status Fleet::StartPreloaded() {
  const bool has_no_log = args_.log_dir.empty();
  return supervisor_.StartPreloaded(
      PreloadedSpec(args_.worker, {.log_path = LogPath(kPreloadedName),
                                   .keeps_stderr = has_no_log,
                                   .keeps_stdout = has_no_log,
                                   .variables = KeysVariables(keys_)}));
}

ProcessSpec Fleet::MemberSpec(Role role, uint32_t index,
                              const std::vector<std::string>& args) const {
  const char* word = EnumName(role);
  const std::string join = link_->endpoints();
  const std::string name = fmt::format("{}-{}", word, index);
  ProcessSpec spec{
      .name = name,
      // The scheduler numbers the processes of all nodes.
      .title = fmt::format("{}{} {}", kind_ == Kind::kNode ? "local " : "", word, index),
      .args = {word, "--join", join, "--start-timeout",
               fmt::format("{}", args_.start_timeout_ms / 1000.0)},
      .log_path = LogPath(name),
      .keeps_stderr = args_.log_dir.empty(),
      .program = args_.program,
      .variables = KeysVariables(keys_)};
  const auto rank = kind_ == Kind::kNode ? std::nullopt : std::optional(index);
  if (rank) spec.args.insert(spec.args.end(), {"--rank", fmt::format("{}", *rank)});
  spec.args.insert(spec.args.end(), args.begin(), args.end());
  if (args_.is_verbose) spec.args.push_back("-v");
  if (role == Role::kWorker && !args_.worker.command.empty()) {
    spec.keeps_stdout = args_.log_dir.empty();
    RunProgram(args_.worker, join, rank, &spec);
  }
  return spec;
}

Status Fleet::Start(Role role, uint32_t index, const std::vector<std::string>& args) {
  const auto make = [this, role, index, args] { return MemberSpec(role, index, args); };
  const ProcessSpec spec = make();
  specs_[spec.name] = make;
  return supervisor_.Start(spec, role);
}

int Fleet::Wait(TimePoint deadline) {
  supervisor_.Wait(deadline, std::array{shutdown_.fd(), link_ ? link_->fd() : -1});
  if (link_) link_->Clear();
  return shutdown_.Take();
}

AfterExit Fleet::Decide(const ProcessExit& exit) {
  if (link_) deaths_.OnExit(exit, *link_);
  has_one_left_ |= exit.kind() == ExitKind::kLeft;
  AfterExit next = supervisor_.is_retired() ? AfterExit::kIgnore : Judge(exit);
  if (next == AfterExit::kRestart && IsInVain(exit)) next = AfterExit::kEnd;
  on_exit_(exit, next);
  return next;
}

AfterExit Fleet::Judge(const ProcessExit& exit) const {
  const FleetPhase phase = kind_ == Kind::kNode && has_one_left_ ? FleetPhase::kLeft
                           : progress().has_begun                ? FleetPhase::kBegun
                                                                 : FleetPhase::kGathering;
  return Follow(FindRole(exit.spec.name), exit.kind(), phase);
}

ExitRole Fleet::FindRole(const std::string& process) const {
  if (process == kSchedulerName) return link_ ? ExitRole::kScheduler : ExitRole::kNewScheduler;
  if (kind_ == Kind::kGroup) return ExitRole::kGroupMember;
  const bool is_script = !args_.worker.command.empty() && process.starts_with("worker-");
  if (kind_ == Kind::kNode) return is_script ? ExitRole::kNodeScript : ExitRole::kNodeMember;
  return is_script ? ExitRole::kScript : ExitRole::kMember;
}

// Returns whether a restart, which the table allows, would not help.
bool Fleet::IsInVain(const ProcessExit& exit) {
  if (exit.is_injected) return false;
  if (deaths_.AreHopeless(exit.spec.name)) return true;
  return kind_ == Kind::kNode && exit.kind() == ExitKind::kUnreached && !MayComeBack(Clock::now());
}

// Returns whether the scheduler may come back. Processes that wait for it end one after another.
bool Fleet::MayComeBack(TimePoint now) {
  const Clock::duration wait =
      std::chrono::milliseconds(args_.start_timeout_ms) + RestartPolicy::kPauseMax;
  if (!unreached_since_ || now - unreached_at_ > 2 * wait) unreached_since_ = now;
  unreached_at_ = now;
  return now - *unreached_since_ < std::max<Clock::duration>(kSchedulerPatience, 2 * wait);
}

}  // namespace pando
