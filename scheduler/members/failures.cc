#include "scheduler/members/failures.h"

#include <fmt/core.h>

#include <utility>

namespace pando {
void Failures::OnFailure(Micros now, const Envelope& envelope, const Failure& failure) {
  const Member& member = membership_.members().Sender(envelope.sender);
  // A newcomer has no generation yet.
  const uint32_t generation = views_.view().generation;
  if (member.is_ready && envelope.generation != generation) return;
  const std::string text =
      fmt::format("{} on {}: {}", member.Name(), member.registration.host, failure.text);
  const bool is_over = phase_.is_ending() || last_snapshot_.is_pending();
  if (is_over || EndsRun(member, failure)) {
    if (!is_over) outbox_.Tell(now, "failed", member.Name(), "{}", failure.text);
    return last_snapshot_.End(now, StopReason::kFailed, text);
  }
  outbox_.TellNotable(now, "failed", member.Name(), "{}", text);
  const bool is_program = member.is_ready && failure.kind == FailureKind::kTraining;
  if (is_program) NoteFailed(ProcessFor(member.registration), text);
  // The run does not need a member that cannot begin.
  if (!member.is_ready) return membership_.Forget(member.peer.node);
  outbox_.Send(envelope.sender, Refused{"given up: " + failure.text});
  membership_.OnDeath(now, member.peer.node, "failure", "exit");
}

// Returns whether the failure ends the run. If not, the run loses only the sender.
bool Failures::EndsRun(const Member& member, const Failure& failure) {
  if (!phase_.is_running()) return true;  // no step is lost
  if (!member.is_ready) return false;
  return IsGroup(plan_) || ConcernsAll(member, failure.kind);
}

// Returns whether the work itself causes the failure: the same failure occurs again before the run
// makes a step. A failure of training must occur in a second process, a failure of a machine on
// another machine. With one machine the next process counts as another machine. The failure of the
// last process counts too.
bool Failures::ConcernsAll(const Member& member, FailureKind kind) {
  const std::string& host = member.registration.host;
  const Trouble trouble{kind, host, progress_.committed()};
  const std::optional<Trouble> before = std::exchange(trouble_, trouble);
  bool has_others = false;
  bool has_others_elsewhere = false;
  for (const Member* other : membership_.members().TakingPart(member.role())) {
    has_others |= other != &member;
    has_others_elsewhere |= other->registration.host != host;
  }
  if (!has_others) return true;
  if (!before || before->kind != kind || before->committed != trouble.committed) return false;
  return kind == FailureKind::kTraining || before->host != host || !has_others_elsewhere;
}

void Failures::NoteFailed(const ProcessName& process, const std::string& text) {
  if (failed_.size() >= kFailedMax) failed_.erase(failed_.begin());
  failed_[process] = text;
}

void Failures::OnFaultNote(Micros now, const PeerId& from, const FaultNote& note) {
  outbox_.Send(from, FaultNoteAck{note.number});
  if (phase_.is_ending()) return;
  const Member* member = membership_.members().FindProcess(note.role, ProcessFor(note));
  if (member != nullptr && member->is_leaving) return;
  const bool is_scheduler = note.role == Role::kScheduler;
  const std::string target = is_scheduler ? "scheduler" : member ? member->Name() : note.target;
  faults_.OnNote(now, {target, ProcessFor(note)}, note, progress_.StepReached());
  if (note.exited_us == 0) return;
  // The program would fail again, and its supervisor may not restart it.
  if (const auto failed = failed_.find(ProcessFor(note));
      failed != failed_.end() && note.process_key != 0)
    return last_snapshot_.End(now, StopReason::kFailed, failed->second);
  if (member != nullptr)
    return membership_.OnDeath(now, member->peer.node, note.action, "exit",
                               note.action == "exit" ? note.text.substr(0, kNameBytesMax) : "");
  if (!is_scheduler) views_.RequestView(now);  // it may have ended before it joined
}

}  // namespace pando
