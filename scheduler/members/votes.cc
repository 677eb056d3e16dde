#include "scheduler/members/votes.h"

#include <fmt/core.h>

#include <algorithm>
#include <ranges>
#include <utility>

namespace pando {
namespace {

// One more divergence that no vote settles ends the run: rollbacks do not repair machines that keep
// diverging.
constexpr uint32_t kDivergencesMax = 3;
constexpr size_t kVotersMin = 3;

using Hashes = std::map<PeerId, std::optional<RecordHashes>>;

// Returns the hash that most replicas have made, if they are enough to tell.
std::optional<uint64_t> HashOfMost(const Hashes& hashes) {
  std::map<uint64_t, size_t> counts;
  for (const auto& [replica, said] : hashes) {
    if (said) ++counts[said->made_hash];
  }
  const auto most = std::ranges::max_element(counts, {}, [](const auto& e) { return e.second; });
  if (hashes.size() < kVotersMin || most == counts.end()) return std::nullopt;
  return 2 * most->second > hashes.size() ? std::optional(most->first) : std::nullopt;
}

std::vector<PeerId> Filter(const Hashes& hashes, const auto& is_wrong) {
  std::vector<PeerId> wrong;
  for (const auto& [replica, said] : hashes) {
    if (said && is_wrong(*said)) wrong.push_back(replica);
  }
  return wrong;
}

// Returns the replicas that are wrong, as far as the answers tell. If the memory of one has
// changed, a newcomer may have a copy of it, and is not to blame.
std::vector<PeerId> FindWrong(const Hashes& hashes) {
  const std::vector<PeerId> changed =
      Filter(hashes, [](const RecordHashes& said) { return said.now_hash != said.made_hash; });
  const std::optional<uint64_t> right = HashOfMost(hashes);
  if (!changed.empty() || !right) return changed;
  return Filter(hashes, [&](const RecordHashes& said) { return said.made_hash != *right; });
}

bool AreEqual(const Hashes& hashes) {
  return std::ranges::all_of(hashes | std::views::values, [&](const auto& said) {
    return said && said->made_hash == hashes.begin()->second->made_hash;
  });
}

}  // namespace

Votes::Votes(const std::optional<SchedulerState>& state, const SchedulerPart& part,
             RunMembers& membership)
    : SchedulerPart(part), membership_(membership) {
  if (state) distrusted_machines_ = state->distrusted_machines;
}

void Votes::OnDivergence(Micros now, const PeerId& from, const Divergence& divergence) {
  const View& view = views_.view();
  const ShardId shard = divergence.shard;
  if (phase_.is_rolling_back() || !phase_.is_running() || shard.value() >= view.shards.size())
    return;
  const ShardPlacement& placement = view.shards[shard.value()];
  if (placement.primary != from || votes_.contains(shard)) return;
  // A report from before the vote; a primary that is alone waits for ever, so the run rolls back.
  const bool is_settled = outvoted_.contains(divergence.backup.incarnation);
  if (is_settled && !placement.in_sync_backups.empty()) return;
  const Member* backup = membership_.members().Find(divergence.backup.incarnation);
  const std::string name =
      backup != nullptr ? backup->Name() : fmt::format("node {}", divergence.backup.node.value());
  Vote vote{.version = divergence.version,
            .what = fmt::format("{} and {} have made different versions {} of shard {}",
                                membership_.members().Sender(from).Name(), name,
                                divergence.version.value(), shard.value()),
            .primary = from,
            .in_sync = {placement.in_sync_backups.begin(), placement.in_sync_backups.end()},
            .ends_at = now + kPatience};
  vote.in_sync.insert(from);
  for (const PeerId& replica : vote.in_sync) vote.hashes.try_emplace(replica);
  if (backup != nullptr) vote.hashes.try_emplace(divergence.backup);
  outbox_.TellNotable(now, "divergence", name, "{}", vote.what);
  if (vote.hashes.size() < kVotersMin) return RollBack(now, vote.what);
  Ask(shard, votes_.emplace(shard, std::move(vote)).first->second);
}

void Votes::Ask(ShardId shard, const Vote& vote) {
  for (const auto& [replica, said] : vote.hashes) {
    if (!said) outbox_.Send(replica, HashWanted{shard, vote.version});
  }
}

void Votes::Repeat() {
  for (const auto& [shard, vote] : votes_) Ask(shard, vote);
}

void Votes::OnRecordHashes(Micros now, const PeerId& from, const RecordHashes& hashes) {
  const auto it = votes_.find(hashes.shard);
  if (it == votes_.end() || it->second.version != hashes.version) return;
  const auto said = it->second.hashes.find(from);
  if (said == it->second.hashes.end()) return;
  said->second = hashes;
  Settle(now, hashes.shard, /*is_over=*/false);
}

void Votes::Tick(Micros now) {
  std::vector<ShardId> over;
  for (const auto& [shard, vote] : votes_) {
    if (now >= vote.ends_at) over.push_back(shard);
  }
  for (const ShardId shard : over) {
    if (votes_.contains(shard)) Settle(now, shard, /*is_over=*/true);
  }
}

Micros Votes::NextDeadline() const {
  Micros next = kNever;
  for (const auto& [shard, vote] : votes_) next = std::min(next, vote.ends_at);
  return next;
}

// The vote ends when all replicas have answered, or when `is_over`.
void Votes::Settle(Micros now, ShardId shard, bool is_over) {
  const Vote vote = votes_.at(shard);
  const bool is_complete = std::ranges::all_of(vote.hashes | std::views::values,
                                               [](const auto& said) { return said.has_value(); });
  if (!is_complete && !is_over) return;
  votes_.erase(shard);
  if (is_complete && AreEqual(vote.hashes) && FindWrong(vote.hashes).empty()) return;
  const std::vector<PeerId> wrong = FindWrong(vote.hashes);
  if (wrong.empty()) return RollBack(now, vote.what);
  const bool has_led = std::ranges::find(wrong, vote.primary) != wrong.end();
  for (const PeerId& server : wrong) OnOutvoted(now, server, vote);
  // Workers may have read its wrong bits before, and then the root has what they made of them.
  if (has_led) phase_.PlanRollback(now, vote.what);
}

void Votes::OnOutvoted(Micros now, const PeerId& server, const Vote& vote) {
  const Member* member = membership_.members().Find(server.incarnation);
  if (member == nullptr) return;  // another of its lanes was outvoted, too
  const std::string machine = MachineFor(member->registration);
  const std::string text = fmt::format(
      "{} is outvoted ({}): other replicas have the same bits and it has others; test the memory "
      "of {}",
      member->Name(), vote.what, machine);
  outbox_.TellNotable(now, "outvoted", member->Name(), "{}", text);
  const bool is_copy = !vote.in_sync.contains(server);  // perhaps of memory that has changed since
  if (!is_copy && std::ranges::find(distrusted_machines_, machine) == distrusted_machines_.end())
    distrusted_machines_.push_back(machine);
  outvoted_.insert(server.incarnation);
  outbox_.Send(server, Refused{"given up: " + text});
  membership_.OnDeath(now, member->peer.node, "outvoted", "message");
}

void Votes::RollBack(Micros now, const std::string& what) {
  votes_.clear();
  if (phase_.is_rolling_back()) return;  // several shards differ for one cause
  if (++rollback_count_ > kDivergencesMax)
    return phase_.End(now, StopReason::kFailed, what + " again; test the memory of these machines");
  phase_.PlanRollback(now, what);
}

void Votes::Forget(const Member& member) {
  for (auto& [shard, vote] : votes_) {
    std::erase_if(vote.hashes, [&](const auto& entry) {
      return entry.first.incarnation == member.peer.incarnation;
    });
  }
}

std::set<NodeId> Votes::Distrusted() const {
  std::set<NodeId> distrusted;
  const auto& servers = membership_.members().TakingPart(Role::kServer);
  for (const Member* server : servers) {
    const std::string machine = MachineFor(server->registration);
    if (std::ranges::find(distrusted_machines_, machine) != distrusted_machines_.end())
      distrusted.insert(server->peer.node);
  }
  return distrusted.size() == servers.size() ? std::set<NodeId>() : distrusted;
}

}  // namespace pando
