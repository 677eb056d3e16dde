#include "server/norms/norms.h"

#include <algorithm>

#include "server/lane_limits.h"

namespace pando {

std::optional<std::vector<float>> Norms::CollectFactors(Micros now, Shard& shard,
                                                        const StepScalars& scalars) {
  if (!maker_.has_partials()) return std::vector<float>();
  const Step step = shard.step();
  if (!shard.has_partials()) {
    shard.MakePartials(scalars);
    TellNeighbours(shard);
    TellSums(step);
    has_news_ = true;  // other shards of this lane may have waited for these values
  }
  const PartialPlan& plan = maker_.partial_plan();
  const Heard* heard = plan.needs_total() ? Open(step) : nullptr;
  const std::optional<PartialTotal> total = heard != nullptr ? heard->total : std::nullopt;
  std::optional<std::vector<float>> factors;
  if (total || !plan.needs_total()) {
    factors = plan.Combine(shard.id(), total.value_or(PartialTotal()),
                           [&](ShardId id) { return Find(id, step); });
  }
  const bool waits_for_others = !plan.needs_total() || HasOwn(step);
  if (!factors && !awaits_others_ && waits_for_others) {
    awaits_others_ = true;
    pull_at_ = is_view_fresh_ ? now : now + kRetryInterval;
  }
  return factors;
}

Norms::Heard* Norms::Open(Step step) {
  std::optional<Step> lowest;
  for (const auto& [id, replica] : replicas_.all()) {
    if (!replica.is_primary() || !replica.shard.has_data()) continue;
    lowest = std::min(lowest.value_or(replica.shard.step()), replica.shard.step());
  }
  if (!lowest) return nullptr;
  steps_.erase(steps_.begin(), steps_.lower_bound(*lowest));
  if (step < *lowest || step > NextStep(*lowest)) return nullptr;
  return &steps_[step];
}

std::span<const float> Norms::Find(ShardId shard, Step step) const {
  const Shard* own = std::as_const(replicas_).FindPrimary(shard);
  if (own != nullptr) return own->FindPartials(step);
  const auto heard = steps_.find(step);
  if (heard == steps_.end()) return {};
  const auto values = heard->second.values.find(shard);
  return values == heard->second.values.end() ? std::span<const float>() : values->second;
}

bool Norms::HasOwn(Step step) const {
  return std::ranges::all_of(replicas_.all(), [&](const auto& entry) {
    const auto& [id, replica] = entry;
    return !replica.is_primary() || !replica.shard.FindPartials(step).empty();
  });
}

ShardSum Norms::Collect(const Heard& heard, Step step, const std::vector<bool>& shards) const {
  ShardSum sum(shards);
  for (const auto& [lane, taken] : heard.sums) sum.Add(taken);
  const PartialPlan& plan = maker_.partial_plan();
  for (const auto& [id, replica] : replicas_.all()) {
    const std::span<const float> values =
        replica.is_primary() ? replica.shard.FindPartials(step) : std::span<const float>();
    if (!values.empty()) sum.Add(plan, id, values);
  }
  for (const auto& [id, values] : heard.values) sum.Add(plan, id, values);
  return sum;
}

void Norms::TellNeighbours(const Shard& shard) {
  const std::span<const float> values = shard.FindPartials(shard.step());
  const ShardPlan::Run neighbours = maker_.partial_plan().Neighbours(shard.id());
  std::set<PeerId> peers;
  for (uint32_t s = neighbours.first; s < neighbours.last; ++s) {
    const PeerId& primary = member_.view().shards[s].primary;
    if (primary.node != kUnknownNode && primary != member_.self()) peers.insert(primary);
  }
  for (const PeerId& peer : peers)
    out_[peer].items.push_back({shard.id(), shard.step(), {values.begin(), values.end()}});
}

// Sends each sum as soon as the last of its values is known, once in each view.
void Norms::TellSums(Step step) {
  Heard* heard = maker_.partial_plan().needs_total() ? Open(step) : nullptr;
  if (heard == nullptr || !HasOwn(step)) return;
  if (!heard->has_told_up) {
    const ShardSum sum = Collect(*heard, step, tree_.shards());
    heard->has_told_up = sum.is_complete();
    for (const PeerId& peer : tree_.up()) {
      if (heard->has_told_up) out_[peer].sums.push_back(sum.Write(step));
    }
  }
  if (!heard->total) {
    const ShardSum sum = Collect(*heard, step, all_);
    if (sum.is_complete()) heard->total = sum.total();
  }
  if (!heard->total || std::exchange(heard->has_told_down, true)) return;
  for (const PeerId& peer : tree_.down())
    out_[peer].sums.push_back({step, {}, heard->total->Write()});
}

void Norms::OnPartials(const Envelope& envelope, const Partials& partials) {
  silence_.OnHeard(envelope.sender);
  if (!maker_.has_partials()) return;
  std::set<Step> news_steps;
  for (const PartialsItem& item : partials.items) {
    if (item.shard.value() >= plan_.shards.shard_count()) continue;
    if (item.values.size() != maker_.partial_count(item.shard)) continue;
    Heard* heard = Open(item.step);
    if (heard == nullptr || !heard->values.try_emplace(item.shard, item.values).second) continue;
    news_steps.insert(item.step);
  }
  for (const PartialSum& sum : partials.sums) {
    const bool is_sound =
        sum.values.size() == PartialTotal::kFloats && tree_.HasPeer(envelope.sender);
    Heard* heard = is_sound ? Open(sum.step) : nullptr;
    if (heard == nullptr || heard->total) continue;
    news_steps.insert(sum.step);
    if (!sum.shards.empty()) {
      heard->sums.insert_or_assign(envelope.sender, sum);
    } else {
      heard->total.emplace().AddWritten(sum.values);
    }
  }
  has_news_ |= !news_steps.empty();
  for (Step step : news_steps) TellSums(step);
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
  if (!maker_.has_partials()) return;
  tree_ = NormTree(member_.view(), member_.self(), peers_max_);
  for (const auto& [id, replica] : replicas_.all()) {
    const Shard& shard = replica.shard;
    if (replica.is_primary() && shard.has_partials() && !shard.is_sealed()) TellNeighbours(shard);
  }
  std::vector<Step> steps;
  for (auto& [step, heard] : steps_) {
    heard.has_told_up = heard.has_told_down = false;
    steps.push_back(step);
  }
  for (Step step : steps) TellSums(step);
}

void Norms::SendGathered(Micros now) {
  const auto made = [](const Shard& shard) {
    return shard.has_partials() ? VersionMadeBy(shard.step()) : shard.newest();
  };
  const bool has_sums =
      std::ranges::any_of(out_, [](const auto& entry) { return !entry.second.sums.empty(); });
  const bool is_worth_waiting = !out_.empty() && !has_sums && replicas_.VersionsDiffer(made);
  if (IsHeld(now, is_worth_waiting, &held_until_)) return;
  for (auto& [peer, partials] : out_) member_.Send(peer, std::move(partials));
  out_.clear();
}

void Norms::AddIfMissing(ShardId shard, Step step, Missing* missing) const {
  const PeerId& primary = member_.view().shards[shard.value()].primary;
  const bool is_elsewhere = primary.node != kUnknownNode && primary != member_.self();
  if (is_elsewhere && Find(shard, step).empty()) (*missing)[primary].insert({step, shard});
}

// Before this lane's own values are complete, others' sums may still be on their way.
void Norms::AddMissingOfTotal(Step step, Missing* missing) const {
  const auto heard = steps_.find(step);
  const bool is_needed = maker_.partial_plan().needs_total() && heard != steps_.end();
  if (!is_needed || heard->second.total || !HasOwn(step)) return;
  const ShardSum known = Collect(heard->second, step, all_);
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    if (!known.Has(ShardId(s))) AddIfMissing(ShardId(s), step, missing);
  }
}

void Norms::PullMissing(Micros now) {
  Missing missing;
  std::set<Step> steps;
  for (const auto& [id, replica] : replicas_.all()) {
    const Shard& shard = replica.shard;
    if (!replica.is_primary() || !shard.has_partials() || shard.is_sealed()) continue;
    steps.insert(shard.step());
    const ShardPlan::Run neighbours = maker_.partial_plan().Neighbours(id);
    for (uint32_t s = neighbours.first; s < neighbours.last; ++s)
      AddIfMissing(ShardId(s), shard.step(), &missing);
  }
  for (const Step step : steps) AddMissingOfTotal(step, &missing);
  awaits_others_ = !steps.empty();
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
