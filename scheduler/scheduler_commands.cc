// What people ask of the scheduler, and processes that are asked to leave.
#include <algorithm>
#include <utility>

#include "scheduler/scheduler.h"

namespace pando {
namespace {

constexpr size_t kCommandsMax = 256;  // remembered, for clients that repeat them

}  // namespace

// ---- commands ----------------------------------------------------------------------------------

void Scheduler::OnMessageOf(Micros now, const Envelope& envelope, const Command& command) {
  const PeerId& from = envelope.sender;
  const auto known = commands_.find(from.incarnation);
  if (known != commands_.end())
    return Send(from, CommandReply{known->second.outcome, known->second.text});
  if (commands_.size() == kCommandsMax) {
    const auto is_over = [](const auto& entry) {
      return entry.second.outcome != CommandOutcome::kAccepted;
    };
    if (std::erase_if(commands_, is_over) == 0)
      return Send(from, CommandReply{CommandOutcome::kRefused, "too many commands are under way"});
  }
  PendingCommand& pending = commands_[from.incarnation];
  pending.command = command;
  pending.from = from;
  Execute(now, pending);
  Send(from, CommandReply{pending.outcome, pending.text});
}

void Scheduler::Execute(Micros now, PendingCommand& pending) {
  if (phase_ >= Phase::kStopping)
    return Conclude(pending, CommandOutcome::kRefused, "the run is ending");
  switch (pending.command.kind) {
    case CommandKind::kStop:
      Conclude(pending, CommandOutcome::kDone, "the run stops");
      return End(now, StopReason::kInterrupted, "stopped by command");
    case CommandKind::kSnapshot:
      if (options_.snapshot_dir.empty() || !is_running())
        return Conclude(pending, CommandOutcome::kRefused, "the run has nothing to store yet");
      if (!snapshot_request_) AskForSnapshot(now, 1);
      pending.text = "version " + std::to_string(snapshot_request_->version.value());
      return;
    case CommandKind::kDrain:
      break;
  }
  Member* member = members_.FindNamed(pending.command.target);
  if (member == nullptr) {
    return Conclude(pending, CommandOutcome::kRefused,
                    "there is no " + pending.command.target + "; pando status names who is there");
  }
  const std::string reason = ReasonNotToDrain(*member);
  if (!reason.empty()) return Conclude(pending, CommandOutcome::kRefused, reason);
  pending.drained = member->peer.incarnation;
  pending.text = member->Name() + " hands its work over";
  Drain(now, *member);
}

void Scheduler::Conclude(PendingCommand& pending, CommandOutcome outcome, std::string text) {
  if (pending.outcome != CommandOutcome::kAccepted) return;
  pending.outcome = outcome;
  pending.text = std::move(text);
}

// ---- drains ------------------------------------------------------------------------------------

std::string Scheduler::ReasonNotToDrain(const Member& member) const {
  if (IsGroup())
    return "allreduce cannot go on without " + member.Name() + "; pando stop ends the run";
  if (member.role() != Role::kServer || !is_running()) return "";
  for (const auto& [node, other] : members_.all()) {
    const bool stays = &other != &member && other.role() == Role::kServer && other.takes_part() &&
                       !other.is_draining;
    if (stays) return "";
  }
  return member.Name() + " is the last server; add another first";
}

void Scheduler::OnMessageOf(Micros now, const Envelope& envelope, const Leave&) {
  Member& member = *members_.Find(envelope.sender.incarnation);
  if (member.is_draining || phase_ >= Phase::kStopping) return;
  const std::string reason = ReasonNotToDrain(member);
  if (reason.empty()) return Drain(now, member);
  if (!std::exchange(member.was_refused_leave, true))
    Tell(now, "drain-refused", member.Name(), reason, /*is_notable=*/true);
}

void Scheduler::Drain(Micros now, Member& member) {
  if (member.is_draining) return;
  member.is_draining = true;
  has_changed_ = true;
  ReleaseSlices(member.peer.node);
  Tell(now, "draining", member.Name(), member.Name() + " hands its work over, to leave", true);
  RequestView(now);
}

// P33: a worker leaves when nothing of it is unreplied, a server when no shard names it.
void Scheduler::StopDrained(Micros now) {
  if (rollback_ || phase_ >= Phase::kStopping || (is_running() && !has_announced())) return;
  for (auto& [node, member] : members_.all()) {
    if (!member.is_draining || member.is_leaving) continue;
    const bool is_named =
        is_running() && member.is_ready &&
        (member.role() == Role::kServer ? IsServerNamed(node) : IsWorkerNamed(node));
    if (is_named) continue;
    member.is_leaving = true;
    repeat_at_ = now;
    Tell(now, "drained", member.Name(), "nothing is left to " + member.Name(), true);
    RequestView(now);
  }
}

}  // namespace pando
