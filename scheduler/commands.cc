#include "scheduler/commands.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace pando {
namespace {

constexpr size_t kCommandsMax = 256;  // finished commands are kept for clients that repeat them

}  // namespace

// ---- commands ----------------------------------------------------------------------------------

void Commands::OnCommand(Micros now, const PeerId& from, const Command& command) {
  const auto known = pending_.find(from.incarnation);
  if (known != pending_.end()) return outbox_.Send(from, known->second.reply);
  if (pending_.size() == kCommandsMax) {
    const auto is_over = [](const auto& entry) {
      return entry.second.reply.outcome != CommandOutcome::kAccepted;
    };
    if (std::erase_if(pending_, is_over) == 0)
      return outbox_.Send(
          from, CommandReply{CommandOutcome::kRefused, "too many commands are under way"});
  }
  Pending& pending = pending_[from.incarnation];
  pending.command = command;
  Execute(now, pending);
  outbox_.Send(from, pending.reply);
}

void Commands::Execute(Micros now, Pending& pending) {
  if (phase_.is_ending()) return Conclude(pending, CommandOutcome::kRefused, "the run is ending");
  switch (pending.command.kind) {
    case CommandKind::kStop:
      if (last_snapshot_.is_pending())
        return Conclude(pending, CommandOutcome::kDone, "the run is stopping already");
      Conclude(pending, CommandOutcome::kDone, "the run stores a snapshot and stops");
      return last_snapshot_.End(now, StopReason::kInterrupted, "stopped by command");
    case CommandKind::kSnapshot:
      return ExecuteSnapshot(now, pending);
    case CommandKind::kDrain:
      return ExecuteDrain(now, pending);
  }
}

void Commands::ExecuteSnapshot(Micros now, Pending& pending) {
  if (!requests_.HasStore())
    return Conclude(pending, CommandOutcome::kRefused, "the run has nothing to store yet");
  pending.reply.text = fmt::format("version {}", requests_.Ask(now).value());
}

void Commands::ExecuteDrain(Micros now, Pending& pending) {
  const Member* member = membership_.members().FindNamed(pending.command.target);
  if (member == nullptr) {
    return Conclude(pending, CommandOutcome::kRefused,
                    "there is no " + pending.command.target + "; pando status lists the processes");
  }
  const std::string reason = ReasonNotToDrain(*member);
  if (!reason.empty()) return Conclude(pending, CommandOutcome::kRefused, reason);
  pending.drained = member->peer.incarnation;
  if (IsLast(*member)) pending.warning = "; it is the last worker: the run waits for another";
  pending.reply.text = member->Name() + " hands its work over" + pending.warning;
  Drain(now, *member);
}

void Commands::Conclude(Pending& pending, CommandOutcome outcome, std::string text) {
  if (pending.reply.outcome != CommandOutcome::kAccepted) return;
  pending.reply = {outcome, std::move(text)};
}

void Commands::ConcludeSnapshots(Micros now) {
  const auto result = requests_.TakeResult(now);
  if (!result) return;
  for (auto& [client, pending] : pending_) {
    if (pending.command.kind == CommandKind::kSnapshot)
      Conclude(pending, result->outcome, result->text);
  }
}

// ---- drains ------------------------------------------------------------------------------------

bool Commands::IsLast(const Member& member) const {
  const auto all = membership_.members().TakingPart(member.role());
  return std::ranges::none_of(
      all, [&](const Member* other) { return other != &member && !other->is_draining; });
}

std::string Commands::ReasonNotToDrain(const Member& member) const {
  if (IsGroup(plan_))
    return "allreduce cannot go on without " + member.Name() + "; pando stop ends the run";
  if (member.role() == Role::kServer && phase_.is_running() && IsLast(member))
    return member.Name() + " is the last server; add another first";
  return "";
}

void Commands::OnLeave(Micros now, const PeerId& from) {
  const Member& member = membership_.members().Sender(from);
  if (member.is_draining || phase_.is_ending()) return;
  const std::string reason = ReasonNotToDrain(member);
  if (reason.empty()) return Drain(now, member);
  if (refused_.insert(member.peer.node).second)
    outbox_.TellNotable(now, "drain-refused", member.Name(), "{}", reason);
}

void Commands::Drain(Micros now, const Member& member) {
  if (member.is_draining) return;
  membership_.MarkDraining(member.peer.node);
  evaluations_.ReleaseSlices(member.peer.node);
  outbox_.TellNotable(now, "draining", member.Name(), "{} hands over its work, then it leaves",
                      member.Name());
  views_.RequestView(now);
}

// A worker stops when all its pushes are answered, a server when no shard names it.
void Commands::StopDrained(Micros now) {
  const bool is_running = phase_.is_running();
  if (phase_.is_rolling_back() || phase_.is_ending()) return;
  if (is_running && !views_.HasAnnounced()) return;
  const View& view = views_.view();
  for (const Member* member : std::vector(membership_.members().Draining())) {
    const NodeId node = member->peer.node;
    const bool is_named =
        is_running && member->is_ready &&
        (member->role() == Role::kServer ? HasReplicaOn(view, node)
                                         : HasWorkFor(view, node, progress_.committed()));
    if (is_named) continue;
    membership_.MarkLeaving(node);
    outbox_.RepeatAt(now);
    outbox_.TellNotable(now, "drained", member->Name(), "{} has no work left", member->Name());
    views_.RequestView(now);
  }
}

void Commands::Forget(const Member& member) {
  refused_.erase(member.peer.node);
  for (auto& [client, pending] : pending_) {
    if (pending.drained == member.peer.incarnation)
      Conclude(pending, CommandOutcome::kDone, member.Name() + " has left" + pending.warning);
  }
}

}  // namespace pando
