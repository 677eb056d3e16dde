#include "scheduler/failures.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace pando {
namespace {

constexpr Micros kAvoidTime = std::chrono::seconds(5);

}  // namespace

// If the scheduler does not hear the peer either, the peer's own lease decides: it is long where a
// death is expensive (P28). After a pause of this process nothing is known yet (P27).
void Silences::OnPeerSilent(Micros now, const PeerId& from, const PeerSilent& silent) {
  const Members& members = run_.members();
  const Member& reporter = *members.Find(from.incarnation);
  const Member* peer = members.Find(silent.peer.incarnation);
  if (peer == nullptr || !run_.phase.is_running() || run_.rollback.is_pending()) return;
  const std::string text = fmt::format("{} has received nothing from {} for {} ms", reporter.Name(),
                                       peer->Name(), silent.silent_ms);
  // P46: no process waits for a worker's answers alone.
  if (peer->role() == Role::kWorker || !Counts(reporter)) return;
  const bool is_between_servers = reporter.role() == Role::kServer;
  const bool is_needed = is_between_servers && HasPartials(run_.plan.job.optimizer) &&
                         LeadsShards(run_.view(), peer->peer.node) &&
                         LeadsShards(run_.view(), reporter.peer.node);
  if (is_between_servers && !is_needed) return OnSilentBackup(now, reporter, *peer, text);
  if (run_.membership.leases().IsUnheard(now, peer->peer.node)) return;
  run_.outbox.TellNotable(now, "silent", peer->Name(), "{}", text);
  OnSilentPair(now, reporter, *peer);
}

// The backup goes, unless the primary needs its values (P14 to P16).
void Silences::OnSilentBackup(Micros now, const Member& primary, const Member& backup,
                              const std::string& text) {
  const bool is_backup = std::ranges::any_of(run_.view().shards, [&](const ShardPlacement& shard) {
    return shard.primary.node == primary.peer.node && HasBackupOn(shard, backup.peer.node);
  });
  if (!is_backup || !silent_backups_.insert({primary.peer.node, backup.peer.node}).second) return;
  avoided_until_[backup.peer.node] = now + kAvoidTime;
  run_.outbox.TellNotable(now, "silent", backup.Name(), "{}; {} is no longer its backup", text,
                          backup.Name());
  run_.views.RequestView(now);
}

// P46. A worker without micro-batches needs no server's answers.
bool Silences::Counts(const Member& reporter) const {
  return reporter.role() == Role::kServer ||
         HasWorkFor(run_.view(), reporter.peer.node, run_.progress.committed());
}

// The server goes if others do not hear it either, or if there are no others and it is not the
// first time. Else the worker goes, and its process joins again over new connections. The report
// came after two leases without an answer, so a lease noticed the death.
void Silences::OnSilentPair(Micros now, const Member& reporter, const Member& server) {
  auto& silences = silences_[server.peer.node];
  std::erase_if(silences, [&](const auto& entry) { return now - entry.second.at > Memory(); });
  Silence& silence = silences[ProcessFor(reporter.registration)];
  silence = {now, silence.count + 1};
  const auto peers = run_.members().TakingPart(reporter.role());
  const auto reporters = std::ranges::count_if(
      peers, [&](const Member* peer) { return peer != &server && Counts(*peer); });
  const bool is_server = reporters <= 1
                             ? silence.count >= 2 || silences.size() >= 2
                             : silences.size() >= 2 && std::ssize(silences) * 2 >= reporters;
  const std::string cause =
      is_server ? fmt::format("{} of {} peers wait for its answers", silences.size(), reporters)
                : fmt::format("it alone gets no answers from {}", server.Name());
  run_.membership.OnDeath(now, is_server ? server.peer.node : reporter.peer.node, "silence",
                          "lease", cause);
}

Micros Silences::Memory() const {
  return kAvoidTime + 4 * std::chrono::milliseconds(run_.plan.job.lease_ms);
}

void Silences::OnWelcome(Micros now, const Member& member) {
  if (IsOftenSilent(now, member.registration)) avoided_until_[member.peer.node] = now + kAvoidTime;
}

bool Silences::IsOftenSilent(Micros now, const Register& registration) const {
  return std::ranges::any_of(silences_, [&](const auto& of_server) {
    const auto it = of_server.second.find(ProcessFor(registration));
    return it != of_server.second.end() && it->second.count >= 2 && now - it->second.at <= Memory();
  });
}

void Silences::Forget(NodeId node) {
  silences_.erase(node);
  avoided_until_.erase(node);
}

std::set<NodeId> Silences::Avoided(Micros now) const {
  std::set<NodeId> avoided;
  for (const auto& [node, until] : avoided_until_) {
    if (now < until) avoided.insert(node);
  }
  return avoided;
}

void Silences::RequestViews(Micros now) {
  for (const auto& [node, until] : avoided_until_) {
    if (now < until) run_.views.RequestView(until);
  }
}

void Silences::ApplyTo(View& next) {
  for (const auto& [primary, backup] : silent_backups_) {
    for (ShardPlacement& placement : next.shards) {
      if (placement.primary.node != primary) continue;
      const auto is_it = [&](const PeerId& peer) { return peer.node == backup; };
      std::erase_if(placement.in_sync_backups, is_it);
      std::erase_if(placement.syncing_backups, [&](const auto& s) { return is_it(s.peer); });
    }
  }
  silent_backups_.clear();
}

void Failures::OnFailure(Micros now, const Envelope& envelope, const Failure& failure) {
  const Member& member = run_.Sender(envelope.sender);
  // A newcomer is of no generation yet.
  const uint32_t generation = run_.view().generation;
  if (member.is_ready && envelope.generation != generation) return;
  const std::string text =
      fmt::format("{} on {}: {}", member.Name(), member.registration.host, failure.text);
  const bool is_over = run_.phase.is_ending() || last_snapshot_.is_pending();
  if (is_over || EndsRun(member, failure)) {
    if (!is_over) run_.outbox.Tell(now, "failed", member.Name(), "{}", failure.text);
    return last_snapshot_.End(now, StopReason::kFailed, text);
  }
  run_.outbox.TellNotable(now, "failed", member.Name(), "{}", text);
  const bool is_program = member.is_ready && failure.kind == FailureKind::kTraining;
  if (is_program) NoteFailed(ProcessFor(member.registration), text);
  // The run does not need a newcomer that cannot begin.
  if (!member.is_ready) return run_.membership.Forget(member.peer.node);
  run_.outbox.Send(envelope.sender, Refused{"given up: " + failure.text});
  run_.membership.OnDeath(now, member.peer.node, "failure", "exit");
}

// Otherwise the failure costs its sender alone.
bool Failures::EndsRun(const Member& member, const Failure& failure) {
  if (!run_.phase.is_running()) return true;  // no step is lost
  if (!member.is_ready) return false;
  return run_.IsGroup() || ConcernsAll(member, failure.kind);
}

// If the same failure occurs again before the run makes a step, the work causes it and the run
// ends: a failure of training in any second process, one of a machine on another machine. With one
// machine the next process counts as another machine. The failure of the last process ends the run
// too.
bool Failures::ConcernsAll(const Member& member, FailureKind kind) {
  const std::string& host = member.registration.host;
  const Trouble trouble{kind, host, run_.progress.committed()};
  const std::optional<Trouble> before = std::exchange(trouble_, trouble);
  bool has_others = false;
  bool has_others_elsewhere = false;
  for (const Member* other : run_.members().TakingPart(member.role())) {
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
  run_.outbox.Send(from, FaultNoteAck{note.number});
  if (run_.phase.is_ending()) return;
  const Member* member = run_.members().FindProcess(note.role, ProcessFor(note));
  if (member != nullptr && member->is_leaving) return;
  const bool is_scheduler = note.role == Role::kScheduler;
  const std::string target = is_scheduler ? "scheduler" : member ? member->Name() : note.target;
  run_.faults.OnNote(now, {target, ProcessFor(note)}, note, run_.progress.StepReached());
  if (note.exited_us == 0) return;
  // A program would fail again, and its supervisor may not start it again.
  if (const auto failed = failed_.find(ProcessFor(note));
      failed != failed_.end() && note.process_key != 0)
    return last_snapshot_.End(now, StopReason::kFailed, failed->second);
  if (member != nullptr)
    return run_.membership.OnDeath(now, member->peer.node, note.action, "exit",
                                   note.action == "exit" ? note.text.substr(0, kNameBytesMax) : "");
  if (!is_scheduler) run_.views.RequestView(now);  // it may have ended before it joined
}

}  // namespace pando
