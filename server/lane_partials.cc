// Values over several shards (P14 to P16): what this lane's shards contribute to a step is told to
// the lanes that need it, and what others contribute is pulled until it is there. A value is named
// by (shard, step) and is the same bits whoever made it, so that whose it was does not matter.
#include <algorithm>
#include <utility>

#include "common/mutation.h"
#include "server/lane.h"
#include "server/lane_limits.h"

namespace pando {

// What the optimizer needs beyond the shard's own gradient; none while values are missing.
std::optional<std::vector<float>> Lane::FactorsOf(Micros now, Replica& replica,
                                                  const StepScalars& scalars) {
  if (partial_plan_.is_empty()) return std::vector<float>();
  Shard& shard = replica.shard;
  if (!shard.has_partials()) {
    shard.MakePartials(scalars);
    TellPartials(shard);
    has_partials_news_ = true;  // others of this lane may have waited for it
  }
  const Step step = shard.step();
  auto factors =
      partial_plan_.Combine(shard.id(), [&](ShardId id) { return PartialsAt(id, step); });
  if (Mutated(Mutation::kSkipAlone) && factors && plan_.job.optimizer.loss_scale.is_on)
    factors->back() = shard.PartialsOf(step).back();
  if (!factors && !awaits_partials_) {
    awaits_partials_ = true;
    pull_partials_at_ = is_view_fresh_ ? now : now + kRetryInterval;
  }
  return factors;
}

std::span<const float> Lane::PartialsAt(ShardId shard, Step step) const {
  const auto own = replicas_.find(shard);
  if (own != replicas_.end() && own->second.is_primary()) return own->second.shard.PartialsOf(step);
  const auto others = partials_.find({step, shard});
  return others == partials_.end() ? std::span<const float>() : others->second;
}

// The lanes other than ours whose shards' updates need this shard's values.
void Lane::TellPartials(const Shard& shard) {
  const ShardPlan::Run needs = partial_plan_.Needs(shard.id());
  const std::span<const float> values = shard.PartialsOf(shard.step());
  for (uint32_t s = needs.first; s < needs.last && s < view().shards.size(); ++s) {
    const PeerId& peer = view().shards[s].primary;
    if (peer.node == kUnknownNode || peer == member_.self()) continue;
    std::vector<PartialsItem>& items = partials_out_[peer].items;
    const bool is_there =
        !items.empty() && items.back().shard == shard.id() && items.back().step == shard.step();
    if (is_there) continue;
    items.push_back({shard.id(), shard.step(), {values.begin(), values.end()}});
  }
}

void Lane::FlushPartials(Micros now) {
  const auto made = [](const Shard& shard) {
    return shard.has_partials() ? VersionMadeBy(shard.step()) : shard.newest();
  };
  const bool is_worth_waiting = !partials_out_.empty() && VersionsDiffer(made);
  if (IsHeld(now, is_worth_waiting, &partials_held_until_)) return;
  for (auto& [peer, partials] : partials_out_) member_.Send(peer, std::move(partials));
  partials_out_.clear();
}

// ---- others' ------------------------------------------------------------------------------------

// P4: while a shard of ours is at step t nobody is beyond step t + 1.
void Lane::OnMessageOf(Micros, const Envelope& envelope, const Partials& partials) {
  partials_silence_.OnHeard(envelope.sender);
  std::optional<Step> lowest;
  for (const auto& [id, replica] : replicas_) {
    if (!replica.is_primary() || !replica.shard.has_data()) continue;
    lowest = std::min(lowest.value_or(replica.shard.step()), replica.shard.step());
  }
  if (!lowest || partial_plan_.is_empty()) return;
  partials_.erase(partials_.begin(), partials_.lower_bound({*lowest, ShardId(0)}));
  for (const PartialsItem& item : partials.items) {
    if (item.step < *lowest || item.step > NextStep(*lowest)) continue;
    if (item.shard.value() >= plan_.shards.shard_count()) continue;
    const ShardRange& range = plan_.shards.range(item.shard);
    if (item.values.size() != optimizer_.partial_count(range)) continue;
    has_partials_news_ |= partials_.try_emplace({item.step, item.shard}, item.values).second;
  }
}

// Of any role: the asker's view may be ahead of ours. Without values the answer says that we live.
void Lane::OnMessageOf(Micros, const Envelope& envelope, const PartialsPull& pull) {
  Partials partials;
  for (const PartialsPullItem& item : pull.items) {
    const auto replica = replicas_.find(item.shard);
    if (replica == replicas_.end() || !replica->second.shard.has_data()) continue;
    const std::span<const float> values = replica->second.shard.PartialsOf(item.step);
    if (!values.empty())
      partials.items.push_back({item.shard, item.step, {values.begin(), values.end()}});
  }
  member_.Send(envelope.sender, std::move(partials));
}

// ---- the tick -----------------------------------------------------------------------------------

void Lane::AdvanceByPartials(Micros now) {
  if (!std::exchange(has_partials_news_, false)) return;
  for (auto& [id, replica] : replicas_) {
    if (replica.is_primary() && replica.shard.has_partials()) TryAdvance(now, replica);
  }
}

// P23: a lane whose values we lack and that does not answer is reported.
void Lane::PullPartials(Micros now) {
  while (auto silent = partials_silence_.TakeDue(now)) member_.SendToScheduler(*silent);
  if (!awaits_partials_ || now < pull_partials_at_) return;
  std::map<PeerId, std::set<std::pair<Step, ShardId>>> missing;
  awaits_partials_ = false;
  for (const auto& [id, replica] : replicas_) {
    const Shard& shard = replica.shard;
    if (!replica.is_primary() || !shard.has_partials() || shard.is_sealed()) continue;
    awaits_partials_ = true;
    const ShardPlan::Run needs = partial_plan_.Needs(id);
    for (uint32_t s = needs.first; s < needs.last && s < view().shards.size(); ++s) {
      const PeerId& peer = view().shards[s].primary;
      if (peer.node == kUnknownNode || peer == member_.self()) continue;
      if (PartialsAt(ShardId(s), shard.step()).empty())
        missing[peer].insert({shard.step(), ShardId(s)});
    }
  }
  is_view_fresh_ = false;
  pull_partials_at_ = now + kRetryInterval;
  if (Mutated(Mutation::kNoPartialsPull)) return;
  for (const auto& [peer, values] : missing) {
    PartialsPull pull;
    for (const auto& [step, shard] : values) pull.items.push_back({shard, step});
    member_.Send(peer, std::move(pull));
    partials_silence_.Expect(now, peer);
  }
}

}  // namespace pando
