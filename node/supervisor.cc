#include "node/supervisor.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <utility>

#include "common/check.h"
#include "common/system.h"
#include "node/programs/preload.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t CountMicros(ProcessGroup::TimePoint time) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count());
}

}  // namespace

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
