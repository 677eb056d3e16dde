#include "node/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include "common/exit_codes.h"
#include "common/system.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t CountMicros(ProcessGroup::TimePoint time) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count());
}

}  // namespace

std::optional<RestartPolicy::TimePoint> RestartPolicy::OnDeath(TimePoint now, Death death) {
  if (now - started_at_ >= kGoodLife && death != Death::kUnreached) death_count_ = 0;
  if (death == Death::kOurDoing) return now + kPauseMin;
  if (death_count_ >= restarts_max_) return std::nullopt;
  auto pause = kPauseMin;
  for (uint32_t i = 0; i < death_count_ && pause < kPauseMax; ++i) pause *= 2;
  ++death_count_;
  return now + std::min(pause, kPauseMax);
}

Supervisor::Supervisor(Options options)
    : options_(std::move(options)), group_([this](const ProcessExit& exit) { OnExit(exit); }) {}

Status Supervisor::Start(const ProcessSpec& spec, Role role) {
  PANDO_RETURN_IF_ERROR(group_.Start(spec));
  Kept kept{.spec = spec, .role = role, .policy = RestartPolicy(options_.restarts_max)};
  kept.policy.OnStart(Clock::now());
  kept_.insert_or_assign(spec.name, std::move(kept));
  return Status();
}

void Supervisor::SetSpec(const ProcessSpec& spec) { kept_.at(spec.name).spec = spec; }

bool Supervisor::Wait(TimePoint deadline, std::span<const int> fds) {
  const bool has_happened = group_.Wait(std::min(deadline, NextDue()), fds);
  RunDue(Clock::now());
  return has_happened || Clock::now() < deadline;
}

void Supervisor::AwaitExits(ShutdownSignal& shutdown, TimePoint deadline) {
  const std::array fds{shutdown.fd()};
  while (running_count() > 0) {
    if (!Wait(deadline, fds) || shutdown.Take() != 0) return;
  }
}

Supervisor::TimePoint Supervisor::NextDue() const {
  TimePoint next = TimePoint::max();
  for (const auto& [name, kept] : kept_) {
    next = std::min({next, kept.restart_at.value_or(next), kept.resume_at.value_or(next)});
  }
  return next;
}

void Supervisor::RunDue(TimePoint now) {
  for (auto& [name, kept] : kept_) {
    if (kept.resume_at && now >= *kept.resume_at) {
      kept.resume_at.reset();
      group_.Signal(name, SIGCONT);
    }
    if (!kept.restart_at || now < *kept.restart_at || is_retired_) continue;
    kept.restart_at.reset();
    kept.policy.OnStart(now);
    Status status = group_.Start(kept.spec);
    if (!status.ok() && start_status_.ok()) start_status_ = std::move(status);
  }
}

void Supervisor::OnExit(const ProcessExit& exit) {
  if (options_.on_exit) options_.on_exit(exit);
  const auto it = kept_.find(exit.spec.name);
  PANDO_CHECK(it != kept_.end());
  if (is_retired_ || exit.is_clean() || (options_.has_left && options_.has_left(exit))) {
    kept_.erase(it);
    return;
  }
  TellDeath(it->second, exit);
  Bury(exit);
}

// Decides what follows a death.
void Supervisor::Bury(const ProcessExit& exit) {
  Kept& kept = kept_.at(exit.spec.name);
  const bool is_ours = std::exchange(kept.killed_us, 0) != 0 && exit.signal == SIGKILL;
  kept.resume_at.reset();
  const bool may_restart = is_ours || !options_.may_restart || options_.may_restart(exit);
  const bool is_unreached = exit.signal == 0 && exit.exit_code == kExitUnreached;
  const auto death = is_ours        ? RestartPolicy::Death::kOurDoing
                     : is_unreached ? RestartPolicy::Death::kUnreached
                                    : RestartPolicy::Death::kOfItsOwn;
  if (may_restart) kept.restart_at = kept.policy.OnDeath(Clock::now(), death);
  if (kept.restart_at) {
    if (options_.on_restart) options_.on_restart(exit);
    return;
  }
  if (!root_cause_) root_cause_ = exit;
  kept_.erase(exit.spec.name);
}

void Supervisor::TellDeath(const Kept& kept, const ProcessExit& exit) {
  if (!options_.on_fault) return;
  FaultNote note = MakeNote(kept, exit.pid);
  note.action = kept.killed_us != 0 ? EnumName(ChaosAction::kKill) : "exit";
  note.injected_us = kept.killed_us;
  note.exited_us = CountMicros(Clock::now());
  note.text = ExitText(exit);
  options_.on_fault(std::move(note));
}

FaultNote Supervisor::MakeNote(const Kept& kept, pid_t pid) const {
  return {.role = kept.role,
          .host = HostName(),
          .process_id = static_cast<uint32_t>(pid),
          .target = kept.spec.title};
}

void Supervisor::Inject(const ChaosAct& act) {
  const auto it = kept_.find(act.process);
  const std::optional<pid_t> pid = group_.Pid(act.process);
  if (it == kept_.end() || !pid) return;
  Kept& kept = it->second;
  const TimePoint now = Clock::now();
  if (act.action == ChaosAction::kKill) {
    kept.killed_us = CountMicros(now);  // told with its end, in a moment
    group_.Signal(act.process, SIGKILL);
    return;
  }
  FaultNote note = MakeNote(kept, *pid);
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
  std::erase_if(kept_, [](const auto& entry) { return entry.second.restart_at.has_value(); });
  group_.SignalAll(SIGCONT);
}

std::set<std::string> Supervisor::Running() const {
  std::set<std::string> names;
  for (const auto& [name, kept] : kept_) {
    if (group_.IsRunning(name)) names.insert(name);
  }
  return names;
}

}  // namespace pando
