#include "scheduler/failures.h"

#include <fmt/format.h>

#include <utility>

namespace pando {

void Failures::OnFailure(Micros now, const Envelope& envelope, const Failure& failure) {
  const Member& member = run_.Sender(envelope.sender);
  // A newcomer is of no generation yet.
  const uint32_t generation = run_.view().generation;
  if (member.is_ready && envelope.generation != generation) return;
  const bool is_running = run_.phase.is_running();
  const bool is_machines = failure.kind == FailureKind::kMachine;
  const std::string text =
      fmt::format("{} on {}: {}", member.Name(), member.registration.host, failure.text);
  if (is_running && !member.is_ready) {  // the run does not need a newcomer that cannot begin
    run_.outbox.TellNotable(now, "failed", member.Name(), "{}", text);
    return run_.membership.Forget(member.peer.node);
  }
  if (is_running && is_machines && !run_.IsGroup() && !ConcernsAll(member)) {
    run_.outbox.TellNotable(now, "failed", member.Name(), "{}", text);
    run_.outbox.Send(envelope.sender, Refused{"given up: " + failure.text});
    return run_.membership.OnDeath(now, member.peer.node, "failure", "exit");
  }
  if (!run_.phase.is_ending()) run_.outbox.Tell(now, "failed", member.Name(), "{}", failure.text);
  last_snapshot_.End(now, StopReason::kFailed, text);
}

// If the same failure occurs again on another machine before the run makes a step, the work causes
// it and the run ends. With one machine the next process counts as another machine. The failure of
// the last process ends the run too.
bool Failures::ConcernsAll(const Member& member) {
  const std::string& host = member.registration.host;
  const Version committed = run_.progress.committed();
  const std::optional<Trouble> before = std::exchange(trouble_, Trouble{host, committed});
  bool has_others = false;
  bool has_others_elsewhere = false;
  for (const Member* other : run_.members().TakingPart(member.role())) {
    has_others |= other != &member;
    has_others_elsewhere |= other->registration.host != host;
  }
  if (!has_others) return true;
  const bool is_repeated = before && before->committed == committed;
  return is_repeated && (before->host != host || !has_others_elsewhere);
}

void Failures::OnFaultNote(Micros now, const PeerId& from, const FaultNote& note) {
  run_.outbox.Send(from, FaultNoteAck{note.number});
  if (run_.phase.is_ending()) return;
  const Member* member = run_.members().FindProcess(note.role, note.host, note.process_id);
  if (member != nullptr && member->is_leaving) return;
  const bool is_scheduler = note.role == Role::kScheduler;
  const std::string target = is_scheduler ? "scheduler" : member ? member->Name() : note.target;
  run_.faults.OnNote(now, {target, note.host, note.process_id}, note, run_.progress.StepReached());
  if (note.exited_us == 0) return;
  if (member != nullptr)
    return run_.membership.OnDeath(now, member->peer.node, note.action, "exit");
  if (!is_scheduler) run_.views.RequestView(now);  // it may have ended before it joined
}

void Failures::ReportFaults(Micros now) {
  for (const FaultRecord& fault : run_.faults.TakeChanged()) {
    run_.observer.OnFault(now, fault);
    run_.outbox.MarkChanged();
  }
}

}  // namespace pando
