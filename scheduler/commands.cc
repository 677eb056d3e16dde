#include "scheduler/commands.h"

#include <algorithm>
#include <utility>

namespace pando {
namespace {

constexpr size_t kCommandsMax = 256;  // remembered, for clients that repeat them

}  // namespace

// ---- commands ----------------------------------------------------------------------------------

void Commands::OnCommand(Micros now, const PeerId& from, const Command& command) {
  const auto known = pending_.find(from.incarnation);
  if (known != pending_.end())
    return parts_.outbox.Send(from, CommandReply{known->second.outcome, known->second.text});
  if (pending_.size() == kCommandsMax) {
    const auto is_over = [](const auto& entry) {
      return entry.second.outcome != CommandOutcome::kAccepted;
    };
    if (std::erase_if(pending_, is_over) == 0)
      return parts_.outbox.Send(
          from, CommandReply{CommandOutcome::kRefused, "too many commands are under way"});
  }
  Pending& pending = pending_[from.incarnation];
  pending.command = command;
  Execute(now, pending);
  parts_.outbox.Send(from, CommandReply{pending.outcome, pending.text});
}

void Commands::Execute(Micros now, Pending& pending) {
  if (parts_.phase.is_ending())
    return Conclude(pending, CommandOutcome::kRefused, "the run is ending");
  switch (pending.command.kind) {
    case CommandKind::kStop:
      Conclude(pending, CommandOutcome::kDone, "the run stops");
      return parts_.phase.End(now, StopReason::kInterrupted, "stopped by command");
    case CommandKind::kSnapshot:
      return ExecuteSnapshot(now, pending);
    case CommandKind::kDrain:
      return ExecuteDrain(now, pending);
  }
}

void Commands::ExecuteSnapshot(Micros now, Pending& pending) {
  if (!parts_.snapshots.has_store() || !parts_.phase.is_running())
    return Conclude(pending, CommandOutcome::kRefused, "the run has nothing to store yet");
  pending.text = "version " + std::to_string(requests_.Ask(now).value());
}

void Commands::ExecuteDrain(Micros now, Pending& pending) {
  const Member* member = parts_.membership.members().FindNamed(pending.command.target);
  if (member == nullptr) {
    return Conclude(pending, CommandOutcome::kRefused,
                    "there is no " + pending.command.target + "; pando status lists the processes");
  }
  const std::string reason = ReasonNotToDrain(*member);
  if (!reason.empty()) return Conclude(pending, CommandOutcome::kRefused, reason);
  pending.drained = member->peer.incarnation;
  pending.text = member->Name() + " hands its work over";
  Drain(now, *member);
}

void Commands::Conclude(Pending& pending, CommandOutcome outcome, std::string text) {
  if (pending.outcome != CommandOutcome::kAccepted) return;
  pending.outcome = outcome;
  pending.text = std::move(text);
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

std::string Commands::ReasonNotToDrain(const Member& member) const {
  if (plan_.job.strategy == Strategy::kAllreduce)
    return "allreduce cannot go on without " + member.Name() + "; pando stop ends the run";
  if (member.role() != Role::kServer || !parts_.phase.is_running()) return "";
  for (const auto& [node, other] : parts_.membership.members().all()) {
    const bool stays = &other != &member && other.role() == Role::kServer && other.takes_part() &&
                       !other.is_draining;
    if (stays) return "";
  }
  return member.Name() + " is the last server; add another first";
}

void Commands::OnLeave(Micros now, const PeerId& from) {
  const Member& member = *parts_.membership.members().Find(from.incarnation);
  if (member.is_draining || parts_.phase.is_ending()) return;
  const std::string reason = ReasonNotToDrain(member);
  if (reason.empty()) return Drain(now, member);
  if (refused_.insert(member.peer.node).second)
    parts_.outbox.Tell(now, "drain-refused", member.Name(), reason, /*is_notable=*/true);
}

void Commands::Drain(Micros now, const Member& member) {
  if (member.is_draining) return;
  parts_.membership.MarkDraining(member.peer.node);
  parts_.evaluations.ReleaseSlices(member.peer.node);
  parts_.outbox.Tell(now, "draining", member.Name(),
                     member.Name() + " hands over its work, then it leaves", true);
  parts_.views.RequestView(now);
}

// A worker leaves when every gradient of it is replied, a server when no shard names it.
void Commands::StopDrained(Micros now) {
  const bool is_running = parts_.phase.is_running();
  if (parts_.rollback.is_pending() || parts_.phase.is_ending()) return;
  if (is_running && !parts_.views.HasAnnounced()) return;
  const View& view = parts_.views.view();
  for (const auto& [node, member] : parts_.membership.members().all()) {
    if (!member.is_draining || member.is_leaving) continue;
    const bool is_named =
        is_running && member.is_ready &&
        (member.role() == Role::kServer ? HasReplicaOn(view, node)
                                        : HasWorkFor(view, node, parts_.progress.committed()));
    if (is_named) continue;
    parts_.membership.MarkLeaving(node);
    parts_.outbox.RepeatAt(now);
    parts_.outbox.Tell(now, "drained", member.Name(), member.Name() + " has no work left", true);
    parts_.views.RequestView(now);
  }
}

void Commands::Forget(const Member& member) {
  refused_.erase(member.peer.node);
  for (auto& [client, pending] : pending_) {
    if (pending.drained == member.peer.incarnation)
      Conclude(pending, CommandOutcome::kDone, member.Name() + " has left");
  }
}

}  // namespace pando
