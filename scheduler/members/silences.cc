#include "scheduler/members/silences.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace pando {
namespace {

constexpr Micros kAvoidTime = std::chrono::seconds(5);

}  // namespace

// If the scheduler does not hear the peer either, the peer's lease decides: it is long where a
// death is expensive (P28). After a pause of this process the scheduler cannot judge yet (P27).
void Silences::OnPeerSilent(Micros now, const PeerId& from, const PeerSilent& silent) {
  const Members& members = membership_.members();
  const Member& reporter = *members.Find(from.incarnation);
  const Member* peer = members.Find(silent.peer.incarnation);
  if (peer == nullptr || !phase_.is_running() || phase_.is_rolling_back()) return;
  const std::string text = fmt::format("{} has received nothing from {} for {} ms", reporter.Name(),
                                       peer->Name(), silent.silent_ms);
  // P46. No process waits for a worker's answers alone, so no report about a worker counts.
  if (peer->role() == Role::kWorker || !Counts(reporter)) return;
  const bool is_between_servers = reporter.role() == Role::kServer;
  const bool is_needed = is_between_servers && HasPartials(plan_.job.optimizer) &&
                         LeadsShards(views_.view(), peer->peer.node) &&
                         LeadsShards(views_.view(), reporter.peer.node);
  if (is_between_servers && !is_needed) return OnSilentBackup(now, reporter, *peer, text);
  if (membership_.leases().IsUnheard(now, peer->peer.node)) return;
  outbox_.TellNotable(now, "silent", peer->Name(), "{}", text);
  OnSilentPair(now, reporter, *peer);
}

// Removes the backup from the primary's shards.
void Silences::OnSilentBackup(Micros now, const Member& primary, const Member& backup,
                              const std::string& text) {
  const bool is_backup =
      std::ranges::any_of(views_.view().shards, [&](const ShardPlacement& shard) {
        return shard.primary.node == primary.peer.node && HasBackupOn(shard, backup.peer.node);
      });
  if (!is_backup || !silent_backups_.insert({primary.peer.node, backup.peer.node}).second) return;
  avoided_until_[backup.peer.node] = now + kAvoidTime;
  outbox_.TellNotable(now, "silent", backup.Name(), "{}; {} is no longer its backup", text,
                      backup.Name());
  views_.RequestView(now);
}

// P46. Returns whether the reporter needs servers: a worker without micro-batches does not.
bool Silences::Counts(const Member& reporter) const {
  return reporter.role() == Role::kServer ||
         HasWorkFor(views_.view(), reporter.peer.node, progress_.committed());
}

// Declares the server dead if others do not hear it either, or if there are no others and this is
// not the first report. Otherwise declares the worker dead, whose process joins again over new
// connections. The report came after two leases, so a lease noticed the death.
void Silences::OnSilentPair(Micros now, const Member& reporter, const Member& server) {
  auto& complaints = complaints_[server.peer.node];
  std::erase_if(complaints, [&](const auto& entry) { return now - entry.second.at > Memory(); });
  Complaints& of_reporter = complaints[ProcessFor(reporter.registration)];
  of_reporter = {now, of_reporter.count + 1};
  const auto peers = membership_.members().TakingPart(reporter.role());
  const auto reporters = std::ranges::count_if(
      peers, [&](const Member* peer) { return peer != &server && Counts(*peer); });
  const bool is_server = reporters <= 1
                             ? of_reporter.count >= 2 || complaints.size() >= 2
                             : complaints.size() >= 2 && std::ssize(complaints) * 2 >= reporters;
  const std::string cause =
      is_server ? fmt::format("{} of {} peers wait for its answers", complaints.size(), reporters)
                : fmt::format("it alone gets no answers from {}", server.Name());
  membership_.OnDeath(now, is_server ? server.peer.node : reporter.peer.node, "silence", "lease",
                      cause);
}

Micros Silences::Memory() const {
  return kAvoidTime + 4 * std::chrono::milliseconds(plan_.job.lease_ms);
}

void Silences::OnWelcome(Micros now, const Member& member) {
  if (IsOftenSilent(now, member.registration)) avoided_until_[member.peer.node] = now + kAvoidTime;
}

bool Silences::IsOftenSilent(Micros now, const Register& registration) const {
  return std::ranges::any_of(complaints_, [&](const auto& of_server) {
    const auto it = of_server.second.find(ProcessFor(registration));
    return it != of_server.second.end() && it->second.count >= 2 && now - it->second.at <= Memory();
  });
}

void Silences::Forget(NodeId node) {
  complaints_.erase(node);
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
    if (now < until) views_.RequestView(until);
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

}  // namespace pando
