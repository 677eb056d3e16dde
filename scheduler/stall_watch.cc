#include "scheduler/stall_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/text.h"
#include "plan/external_model.h"

namespace pando {
namespace {

constexpr const char* kUnknown = "unknown";
constexpr int kUsualSteps = 10;
// Ticks come at least twice per this time, unless this process was stopped.
constexpr Micros kAwayMin = std::chrono::seconds(1);
// While a run is stalled its cause is looked for at least this often.
constexpr Micros kLookInterval = std::chrono::milliseconds(250);
// A look costs time for each member, so the pause between two grows with the members up to that.
constexpr Micros kLookPausePerMember = std::chrono::microseconds(250);
// If the cause keeps changing, the time between events doubles from kTellFirst to kTellMax.
constexpr Micros kTellFirst = std::chrono::seconds(1);
constexpr Micros kTellMax = std::chrono::seconds(64);
// A worker whose thread waits longer for samples counts as waiting for samples.
constexpr uint64_t kSamplesWaitMs = 500;

std::string Seconds(Micros time) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(time).count());
}

// "1 more server"; empty if all are there.
std::string MoreText(size_t here, uint32_t wanted, Role role) {
  if (here >= wanted) return "";
  return fmt::format("{} more {}{}", wanted - here, EnumName(role), wanted - here == 1 ? "" : "s");
}

}  // namespace

std::string Stall::Text(Micros now) const {
  std::string text = fmt::format("{} has waited {} for {} ({})", waiter,
                                 Seconds(std::max(Micros(0), now - since)), waited_for, what);
  if (!why.empty()) text += ": " + why;
  if (!log_line.empty()) text += "; its log ends: " + log_line;
  return text;
}

void StallWatch::OnHeartbeat(Micros now, const Member& member, const Heartbeat& heartbeat) {
  const auto [it, is_new] = doing_.try_emplace(member.peer.node);
  Doing& doing = it->second;
  const bool is_same =
      !is_new && doing.activity == heartbeat.activity && doing.step == heartbeat.step;
  if (!is_same) doing = {heartbeat.activity, heartbeat.step, now, now};
  doing.heard_at = now;
}

void StallWatch::OnForget(const Member& member) {
  const auto doing = doing_.find(member.peer.node);
  const Micros heard_at = doing == doing_.end() ? now_ : doing->second.heard_at;
  if (!member.is_leaving)
    lost_[member.role()] = {member.Name(), member.Where(), member.heartbeat.log_line, heard_at,
                            now_};
  if (doing != doing_.end()) doing_.erase(doing);
}

// ---- when ---------------------------------------------------------------------------------------

bool StallWatch::IsWatching() const { return phase_.is_gathering() || phase_.is_training(); }

// Returns whether a step was made since the last call, in the same generation.
bool StallWatch::HasMadeStep() {
  const Version committed = progress_.committed();
  const uint32_t generation = views_.view().generation;
  const bool is_same_generation = std::exchange(step_generation_, generation) == generation;
  const Version before = std::exchange(step_version_, committed);
  const bool has_made_step = is_same_generation && committed > before;
  if (!is_same_generation) is_restoring_ = true;
  if (has_made_step) is_restoring_ = false;
  return has_made_step;
}

Micros StallWatch::Patience() const {
  if (phase_.is_gathering()) return kStartMin;
  if (usual_step_ == Micros(0)) return kFirstStepMin;
  return std::max(kStallMin, kUsualSteps * usual_step_);
}

Micros StallWatch::NextDeadline() const {
  if (!IsWatching() || now_ == Micros(0)) return kNever;
  return stall_ ? now_ + kLookInterval : std::min(step_at_ + Patience(), now_ + kAwayMin / 2);
}

void StallWatch::Tick(Micros now) {
  const Micros before = std::exchange(now_, now);
  const bool is_first = before == Micros(0);
  // This process was stopped, or was writing its journal: it does not know the others' steps yet.
  const bool was_away = now - before >= kAwayMin;
  const bool has_made_step = HasMadeStep();
  const bool was_gathering = std::exchange(is_gathering_, phase_.is_gathering());
  if (is_first || was_away || has_made_step || was_gathering != is_gathering_ || !IsWatching()) {
    if (stall_) TellEnd(now);
    if (has_made_step) usual_step_ = progress_.UsualStep();
    step_at_ = now;
    return;
  }
  if (StepAge(now) < Patience() || (stall_ && now < look_at_)) return;
  const auto member_count = std::ssize(membership_.members().all());
  look_at_ = now + std::min(kLookInterval, kLookPausePerMember * member_count);
  stall_ = FindCause(now);
  // An unknown cause is no news, for example while a newcomer has sent nothing yet.
  const bool is_news = told_.waited_for.empty() || stall_->waited_for != kUnknown;
  if (is_news && stall_->waited_for != told_.waited_for && now >= told_.again_at) Tell(now);
}

// The text of a slow start must not read like a fault.
std::string StallWatch::Text(Micros now) const {
  if (is_gathering_)
    return fmt::format("the run starts when all processes have joined; it waits for {} {}: {}",
                       stall_->waited_for, stall_->what, stall_->why);
  return fmt::format("no step for {}: {}", Seconds(StepAge(now)), stall_->Text(now));
}

void StallWatch::Tell(Micros now) {
  const std::string text = Text(now);
  // An evaluation ends by itself, so the terminal does not show it.
  if (phase_.clock().is_standing_still())
    outbox_.Tell(now, "stalled", stall_->waited_for, "{}", text);
  else
    outbox_.TellNotable(now, "stalled", stall_->waited_for, "{}", text);
  told_.waited_for = stall_->waited_for;
  told_.interval = std::clamp(2 * told_.interval, kTellFirst, kTellMax);
  told_.again_at = now + told_.interval;
}

void StallWatch::TellEnd(Micros now) {
  stall_.reset();
  const std::string waited_for = std::exchange(told_, {}).waited_for;
  if (waited_for.empty()) return;
  const std::string text = fmt::format("no step was made for {}; the run waited for {}",
                                       Seconds(StepAge(now)), waited_for);
  outbox_.Tell(now, "stall-ended", "", "{}", text);
}

// ---- why ----------------------------------------------------------------------------------------

const StallWatch::Doing& StallWatch::FindDoing(const Member& member) const {
  static const Doing kNothing;
  const auto it = doing_.find(member.peer.node);
  return it == doing_.end() ? kNothing : it->second;
}

// Names a worker that waits, other than the one waited for.
std::string StallWatch::NameWaiter(const Member& waited_for) const {
  for (const Member* worker : membership_.members().Workers()) {
    const bool waits = worker->heartbeat.activity == Activity::kWaitingForParameters;
    if (worker != &waited_for && waits) return worker->Name();
  }
  return "the run";
}

Stall StallWatch::ForMember(const Member& member, std::string what, Micros since,
                            std::string why) const {
  return {.waiter = NameWaiter(member),
          .waited_for = member.Name(),
          .what = std::move(what),
          .why = std::move(why),
          .since = since,
          .log_line = member.heartbeat.log_line};
}

Stall StallWatch::FindCause(Micros now) const {
  if (auto stall = FindMissing(now)) return *std::move(stall);
  if (auto stall = FindSilent(now)) return *std::move(stall);
  if (auto stall = FindGivenUp(now)) return *std::move(stall);
  if (auto stall = FindBusyWorker(now)) return *std::move(stall);
  if (auto stall = FindOwing(now)) return *std::move(stall);
  if (is_restoring_ || phase_.is_rolling_back()) {
    return {.waited_for = "the servers",
            .what = "a snapshot",
            .why = fmt::format("they restore version {}, with which generation {} begins",
                               views_.view().restore.version.value(), views_.view().generation),
            .since = step_at_};
  }
  return {.waited_for = kUnknown,
          .what = fmt::format("step {}", progress_.StepReached().value()),
          .why = "no process says that it waits; look at the logs",
          .since = step_at_};
}

Stall StallWatch::ForLost(Role role, Micros now) const {
  const std::string what = fmt::format("a {} to go on", EnumName(role));
  const auto lost = lost_.find(role);
  if (lost == lost_.end()) {
    return {.waited_for = fmt::format("a {}", EnumName(role)),
            .what = what,
            .why = "there is none; start one",
            .since = step_at_};
  }
  const Lost& last = lost->second;
  return {.waited_for = last.name,
          .what = what,
          .why = fmt::format("{} was given up, last heard {} ago, and no other {} is left; start "
                             "one, or let it go on",
                             last.where, Seconds(now - last.heard_at), EnumName(role)),
          .since = step_at_,
          .log_line = last.log_line};
}

std::optional<Stall> StallWatch::FindMissing(Micros now) const {
  const Members& members = membership_.members();
  if (phase_.is_gathering()) {
    if (auto stall = FindUnready()) return stall;
    const std::string servers =
        MoreText(members.CountReady(Role::kServer), plan_.job.servers, Role::kServer);
    const std::string workers =
        MoreText(members.CountReady(Role::kWorker), plan_.job.workers, Role::kWorker);
    return Stall{.waited_for = servers.empty() || workers.empty() ? servers + workers
                                                                  : servers + " and " + workers,
                 .what = "to join",
                 .why = "here are " + membership_.MissingText(),
                 .since = step_at_};
  }
  if (members.CountReady(Role::kServer) == 0) return ForLost(Role::kServer, now);
  if (members.CountReady(Role::kWorker) == 0) return ForLost(Role::kWorker, now);
  return std::nullopt;
}

// Finds a member that is not ready, once all have joined.
std::optional<Stall> StallWatch::FindUnready() const {
  uint32_t joined_count = 0;
  const Member* unready = nullptr;
  for (const auto& [node, member] : membership_.members().all()) {
    ++joined_count;
    if (!member.is_ready && unready == nullptr) unready = &member;
  }
  if (unready == nullptr || joined_count < plan_.job.servers + plan_.job.workers)
    return std::nullopt;
  return ForMember(*unready, "to be ready", step_at_, "it reads its data and makes its model");
}

// Finds the member that has been silent longest, if two of its heartbeats are late. If all members
// are silent, this machine may be cut off.
std::optional<Stall> StallWatch::FindSilent(Micros now) const {
  const Micros usual = std::chrono::milliseconds(plan_.job.heartbeat_ms);
  const Leases& leases = membership_.leases();
  const Member* silent = nullptr;
  Micros longest = 2 * usual + usual / 2;
  size_t silent_count = 0;
  for (const auto& [node, member] : membership_.members().all()) {
    if (member.is_leaving) continue;
    const Micros silence = leases.SilenceSince(now, node);
    if (silence >= 2 * usual + usual / 2) ++silent_count;
    if (silence < longest) continue;
    longest = silence;
    silent = &member;
  }
  if (silent == nullptr) return std::nullopt;
  if (silent_count == membership_.members().all().size() && silent_count > 1) {
    return Stall{.waiter = "the scheduler",
                 .waited_for = "all processes",
                 .what = "a sign of life",
                 .why = "no message comes from any of them; is this machine cut off?",
                 .since = now - longest};
  }
  return ForMember(*silent, "a sign of life", now - longest,
                   fmt::format("no message comes from {}: it is stopped, overloaded or cut off",
                               silent->Where()));
}

// Finds a member that was given up, if no step was made since then.
std::optional<Stall> StallWatch::FindGivenUp(Micros now) const {
  for (const auto& [role, lost] : lost_) {
    if (lost.lost_at <= step_at_ || membership_.members().FindNamed(lost.name) != nullptr) continue;
    return Stall{.waited_for = lost.name,
                 .what = "others to take over its work",
                 .why = fmt::format("{} was given up, last heard {} ago", lost.where,
                                    Seconds(now - lost.heard_at)),
                 .since = lost.heard_at,
                 .log_line = lost.log_line};
  }
  return std::nullopt;
}

// Finds the worker that has waited for samples, evaluated or computed for the longest time.
std::optional<Stall> StallWatch::FindBusyWorker(Micros now) const {
  const Member* busy = nullptr;
  for (const Member* worker : membership_.members().Workers()) {
    const Heartbeat& heartbeat = worker->heartbeat;
    const bool is_busy =
        heartbeat.activity == Activity::kComputing || heartbeat.activity == Activity::kEvaluating;
    if (!is_busy) continue;
    if (busy == nullptr || FindDoing(*worker).since < FindDoing(*busy).since) busy = worker;
  }
  if (busy == nullptr) return std::nullopt;
  const Heartbeat& heartbeat = busy->heartbeat;
  const Micros since = FindDoing(*busy).since;
  if (heartbeat.samples_wait_ms >= kSamplesWaitMs) {
    return ForMember(*busy, fmt::format("samples of step {}", heartbeat.step.value()),
                     now - std::chrono::milliseconds(heartbeat.samples_wait_ms),
                     "it reads its data set: a slow disk or network");
  }
  if (heartbeat.activity == Activity::kEvaluating)
    return ForMember(*busy, "an evaluation", since, "the workers make no steps until it is done");
  const char* why =
      IsExternal(plan_.job) ? "its script computes, or does something else" : "it computes";
  return ForMember(*busy, fmt::format("gradients of step {}", heartbeat.step.value()), since, why);
}

// Finds the lane for which a worker has waited longest, or the backup for which that lane waits.
std::optional<Stall> StallWatch::FindOwing(Micros now) const {
  const Members& members = membership_.members();
  const Member* waiter = nullptr;
  for (const Member* worker : members.Workers()) {
    const Heartbeat& heartbeat = worker->heartbeat;
    if (heartbeat.activity != Activity::kWaitingForParameters) continue;
    if (waiter == nullptr || heartbeat.waiting_ms > waiter->heartbeat.waiting_ms) waiter = worker;
  }
  if (waiter == nullptr) return std::nullopt;
  const Member* owing = members.Find(waiter->heartbeat.waiting_for.node);
  if (owing == nullptr) return std::nullopt;
  const Version missing = VersionMadeBy(waiter->heartbeat.step);
  std::string what =
      fmt::format("parameters of step {}", plan_.steps.LastStepReading(missing).value());
  const auto is_stalled = [&](const Heartbeat& heartbeat) {
    return std::chrono::milliseconds(heartbeat.waiting_ms) >= kStallMin / 2;
  };
  const Member* backup = members.Find(owing->heartbeat.waiting_for.node);
  if (backup != nullptr && backup != owing && is_stalled(owing->heartbeat)) {
    waiter = std::exchange(owing, backup);
    what = "the acknowledgement of a version";
  }
  Stall stall = ForMember(
      *owing, std::move(what), now - std::chrono::milliseconds(waiter->heartbeat.waiting_ms),
      "the scheduler hears both: is the connection between them cut, or one of them overloaded?");
  stall.waiter = waiter->Name();
  return stall;
}

}  // namespace pando
