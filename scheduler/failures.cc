#include "scheduler/failures.h"

#include <utility>

namespace pando {

void Failures::OnFailure(Micros now, const Envelope& envelope, const Failure& failure) {
  const Member& member = *parts_.membership.members().Find(envelope.sender.incarnation);
  // A newcomer is of no generation yet.
  const uint32_t generation = parts_.views.view().generation;
  if (member.is_ready && envelope.generation != generation) return;
  const bool is_running = parts_.phase.is_running();
  const bool is_machines = failure.kind == FailureKind::kMachine;
  const bool is_group = plan_.job.strategy == Strategy::kAllreduce;
  const std::string text = member.Name() + " on " + member.registration.host + ": " + failure.text;
  if (is_running && !member.is_ready) {  // the run does not need a newcomer that cannot begin
    parts_.outbox.Tell(now, "failed", member.Name(), text, /*is_notable=*/true);
    return parts_.membership.Forget(member.peer.node);
  }
  if (is_running && is_machines && !is_group && !ConcernsAll(member)) {
    parts_.outbox.Tell(now, "failed", member.Name(), text, /*is_notable=*/true);
    parts_.outbox.Send(envelope.sender, Refused{"given up: " + failure.text});
    return parts_.membership.OnDeath(now, member.peer.node, "failure", "exit");
  }
  if (!parts_.phase.is_ending()) parts_.outbox.Tell(now, "failed", member.Name(), failure.text);
  parts_.phase.End(now, StopReason::kFailed, text);
}

// If the same failure occurs again on another machine before the run makes a step, the work causes
// it and the run ends. With one machine the next process counts as another machine. The failure of
// the last process ends the run too.
bool Failures::ConcernsAll(const Member& member) {
  const std::string& host = member.registration.host;
  const Version committed = parts_.progress.committed();
  const std::optional<Trouble> before = std::exchange(trouble_, Trouble{host, committed});
  bool has_others = false;
  bool has_others_elsewhere = false;
  for (const auto& [node, other] : parts_.membership.members().all()) {
    if (&other == &member || other.role() != member.role() || !other.takes_part()) continue;
    has_others = true;
    has_others_elsewhere |= other.registration.host != host;
  }
  if (!has_others) return true;
  const bool is_repeated = before && before->committed == committed;
  return is_repeated && (before->host != host || !has_others_elsewhere);
}

void Failures::OnFaultNote(Micros now, const PeerId& from, const FaultNote& note) {
  parts_.outbox.Send(from, FaultNoteAck{note.number});
  if (parts_.phase.is_ending()) return;
  const Member* member =
      parts_.membership.members().FindProcess(note.role, note.host, note.process_id);
  if (member != nullptr && member->is_leaving) return;
  const bool is_scheduler = note.role == Role::kScheduler;
  const std::string target = is_scheduler ? "scheduler" : member ? member->Name() : note.target;
  parts_.faults.OnNote(now, {target, note.host, note.process_id}, note,
                       parts_.progress.StepReached());
  if (note.exited_us == 0) return;
  if (member != nullptr)
    return parts_.membership.OnDeath(now, member->peer.node, note.action, "exit");
  if (!is_scheduler) parts_.views.RequestView(now);  // it may have ended before it joined
}

void Failures::ReportFaults(Micros now) {
  for (const FaultRecord& fault : parts_.faults.TakeChanged()) {
    parts_.observer.OnFault(now, fault);
    parts_.outbox.MarkChanged();
  }
}

}  // namespace pando
