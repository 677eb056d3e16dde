#include "server/norms.h"

#include <algorithm>
#include <set>

#include "server/lane_limits.h"

namespace pando {

std::optional<std::vector<float>> Norms::CollectFactors(Micros now, Shard& shard,
                                                        const StepScalars& scalars) {
  if (!maker_.has_partials()) return std::vector<float>();
  if (!shard.has_partials()) {
    shard.MakePartials(scalars);
    TellOthers(shard);
    has_news_ = true;  // other shards of this lane may have waited for these values
  }
  const Step step = shard.step();
  std::optional<std::vector<float>> factors;
  if (MayBeComplete(shard.id(), step))
    factors = maker_.Combine(shard.id(), [&](ShardId id) { return Find(id, step); });
  if (!factors && !awaits_others_) {
    awaits_others_ = true;
    pull_at_ = is_view_fresh_ ? now : now + kRetryInterval;
  }
  return factors;
}

std::span<const float> Norms::Find(ShardId shard, Step step) const {
  const Shard* own = std::as_const(replicas_).FindPrimary(shard);
  if (own != nullptr) return own->FindPartials(step);
  const auto of_step = others_.find(step);
  if (of_step == others_.end()) return {};
  const auto others = of_step->second.find(shard);
  return others == of_step->second.end() ? std::span<const float>() : others->second;
}

bool Norms::MayBeComplete(ShardId shard, Step step) const {
  const ShardPlan::Run needs = maker_.Needs(shard);
  if (needs.last - needs.first < plan_.shards.shard_count()) return true;
  const auto of_step = others_.find(step);
  size_t count = of_step == others_.end() ? 0 : of_step->second.size();
  for (const auto& [id, replica] : replicas_.all())
    count += replica.is_primary() && !replica.shard.FindPartials(step).empty() ? 1 : 0;
  return count >= plan_.shards.shard_count();
}

template <class Visit>
void Norms::VisitOthers(ShardId shard, Visit visit) const {
  const std::vector<ShardPlacement>& placements = member_.view().shards;
  const ShardPlan::Run needs = maker_.Needs(shard);
  for (uint32_t s = needs.first; s < needs.last && s < placements.size(); ++s) {
    const PeerId& peer = placements[s].primary;
    if (peer.node != kUnknownNode && peer != member_.self()) visit(ShardId(s), peer);
  }
}

void Norms::TellOthers(const Shard& shard) {
  const std::span<const float> values = shard.FindPartials(shard.step());
  VisitOthers(shard.id(), [&](ShardId, const PeerId& peer) {
    std::vector<PartialsItem>& items = out_[peer].items;
    const bool is_there =
        !items.empty() && items.back().shard == shard.id() && items.back().step == shard.step();
    if (!is_there) items.push_back({shard.id(), shard.step(), {values.begin(), values.end()}});
  });
}

// P4. While a shard of this lane is at step t, no shard is beyond step t + 1.
void Norms::OnPartials(const Envelope& envelope, const Partials& partials) {
  silence_.OnHeard(envelope.sender);
  std::optional<Step> lowest;
  for (const auto& [id, replica] : replicas_.all()) {
    if (!replica.is_primary() || !replica.shard.has_data()) continue;
    lowest = std::min(lowest.value_or(replica.shard.step()), replica.shard.step());
  }
  if (!lowest || !maker_.has_partials()) return;
  others_.erase(others_.begin(), others_.lower_bound(*lowest));
  for (const PartialsItem& item : partials.items) {
    if (item.step < *lowest || item.step > NextStep(*lowest)) continue;
    if (item.shard.value() >= plan_.shards.shard_count()) continue;
    if (item.values.size() != maker_.partial_count(item.shard)) continue;
    has_news_ |= others_[item.step].try_emplace(item.shard, item.values).second;
  }
}

// A replica of any role answers, because the sender's view may be newer. An answer without values
// shows that the lane lives.
void Norms::OnPartialsPull(const Envelope& envelope, const PartialsPull& pull) {
  Partials partials;
  for (const PartialsPullItem& item : pull.items) {
    const Replica* replica = replicas_.Find(item.shard);
    if (replica == nullptr || !replica->shard.has_data()) continue;
    const std::span<const float> values = replica->shard.FindPartials(item.step);
    if (!values.empty())
      partials.items.push_back({item.shard, item.step, {values.begin(), values.end()}});
  }
  member_.Send(envelope.sender, std::move(partials));
}

void Norms::EnterView(Micros now) {
  out_.clear();
  silence_.Clear();
  is_view_fresh_ = has_news_ = true;
  pull_at_ = now;
  for (const auto& [id, replica] : replicas_.all()) {
    const Shard& shard = replica.shard;
    if (replica.is_primary() && shard.has_partials() && !shard.is_sealed()) TellOthers(shard);
  }
}

void Norms::SendGathered(Micros now) {
  const auto made = [](const Shard& shard) {
    return shard.has_partials() ? VersionMadeBy(shard.step()) : shard.newest();
  };
  const bool is_worth_waiting = !out_.empty() && replicas_.VersionsDiffer(made);
  if (IsHeld(now, is_worth_waiting, &held_until_)) return;
  for (auto& [peer, partials] : out_) member_.Send(peer, std::move(partials));
  out_.clear();
}

void Norms::PullMissing(Micros now) {
  std::map<PeerId, std::set<std::pair<Step, ShardId>>> missing;
  awaits_others_ = false;
  for (const auto& [id, replica] : replicas_.all()) {
    const Shard& shard = replica.shard;
    if (!replica.is_primary() || !shard.has_partials() || shard.is_sealed()) continue;
    awaits_others_ = true;
    VisitOthers(id, [&](ShardId other, const PeerId& peer) {
      if (Find(other, shard.step()).empty()) missing[peer].insert({shard.step(), other});
    });
  }
  is_view_fresh_ = false;
  pull_at_ = now + kRetryInterval;
  for (const auto& [peer, values] : missing) {
    PartialsPull pull;
    for (const auto& [step, shard] : values) pull.items.push_back({shard, step});
    member_.Send(peer, std::move(pull));
    silence_.Expect(now, peer);
  }
}

}  // namespace pando
