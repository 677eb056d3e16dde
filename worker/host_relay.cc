#include "worker/host_relay.h"

#include <algorithm>
#include <utility>

#include "common/add_floats.h"

namespace pando {

HostRelay::HostRelay(const JobPlan& plan, BufferSource buffers)
    : plan_(plan), buffers_(std::move(buffers)), shards_(plan.shards.shard_count()) {}

void HostRelay::Enter(const View& view, const PeerId& self) {
  view_ = view;
  group_ = HostGroupOf(view, self, plan_);
  is_relay_ = group_.has_relay() && group_.relay == self;
  is_given_up_ = false;
  last_gave_.clear();
  nodes_step_.reset();
  look_again_at_ = ask_at_ = kNever;
  asked_since_.reset();
  for (ShardState& shard : shards_) shard.leaves_at = kNever;
}

void HostRelay::Forget() {
  for (ShardState& shard : shards_) shard.gifts.clear();
}

// ---- who gives ---------------------------------------------------------------------------------

bool HostRelay::Gives(ShardId shard) const {
  return group_.has_relay() && !is_relay_ && !is_given_up_ && group_.sums[shard.value()];
}

size_t HostRelay::shard_count() const {
  return static_cast<size_t>(std::ranges::count(group_.sums, true));
}

void HostRelay::NoteGiven(Micros now) {
  if (ask_at_ == kNever) ask_at_ = now + kQuiet;
}

void HostRelay::NoteHeard(Micros now) {
  asked_since_.reset();
  ask_at_ = now + kQuiet;
}

HostRelay::Due HostRelay::TakeDue(Micros now, bool is_owed) {
  if (now < ask_at_) return Due::kNothing;
  ask_at_ = kNever;
  if (!is_owed) return Due::kNothing;
  if (!asked_since_) asked_since_ = now;
  is_given_up_ = now - *asked_since_ >= kPatience;
  if (is_given_up_) return Due::kGiveUp;
  ask_at_ = now + kAskAgain;
  return Due::kAsk;
}

// ---- who is given ------------------------------------------------------------------------------

bool HostRelay::Sums(ShardId shard) const { return is_relay_ && group_.sums[shard.value()]; }

void HostRelay::Keep(ShardId shard, Gift gift) {
  Step& last = last_gave_.try_emplace(gift.giver.node, gift.step).first->second;
  last = std::max(last, gift.step);
  std::vector<Gift>& gifts = shards_[shard.value()].gifts;
  const bool is_there = std::ranges::any_of(gifts, [&](const Gift& other) {
    return other.giver == gift.giver && other.step == gift.step && other.node == gift.node;
  });
  if (!is_there) gifts.push_back(std::move(gift));
}

Blob HostRelay::Sum(ShardId shard, const Blob& left, const Blob& right) {
  std::optional<BufferPool>& pool = shards_[shard.value()].pool;
  if (!pool) pool.emplace(plan_.shards.range(shard).size(), buffers_);
  const SharedBuffer sum = pool->Take();
  AddSpans(sum->data(), left.floats(), right.floats());
  return ToBlob(sum);
}

// Whether it is a part of what those who give, and we, have to give.
bool HostRelay::WaitsForOthers(Step step, TreeNode node) {
  const MicroBatchTree tree = plan_.steps.Tree(step);
  if (nodes_step_ != step) {
    HostGroup givers = group_;
    std::erase_if(givers.workers, [&](NodeId worker) {
      const auto last = last_gave_.find(worker);
      const bool gives = last != last_gave_.end() && NextStep(last->second) >= step;
      return worker != group_.relay.node && !gives;
    });
    nodes_ = NodesOfHost(givers, view_, step, tree);
    nodes_step_ = step;
  }
  return std::ranges::any_of(nodes_, [&](TreeNode ours) { return tree.IsAncestor(ours, node); });
}

bool HostRelay::MayLeave(Micros now, ShardId shard, Step step, TreeNode node, Micros patience) {
  if (!Sums(shard) || !WaitsForOthers(step, node)) return true;
  Micros& leaves_at = shards_[shard.value()].leaves_at;
  if (leaves_at == kNever) leaves_at = now + patience;
  if (now >= leaves_at) return true;
  look_again_at_ = std::min(look_again_at_, leaves_at);
  return false;
}

void HostRelay::OnCommitted(ShardId shard, Version version) {
  ShardState& state = shards_[shard.value()];
  state.leaves_at = kNever;
  std::erase_if(state.gifts, [&](const Gift& gift) { return VersionMadeBy(gift.step) < version; });
  for (Gift& gift : state.gifts) {
    if (VersionMadeBy(gift.step) == version) gift.payload = Blob();
  }
}

std::map<PeerId, Params> HostRelay::TakeReplies(const Params& params) {
  std::map<PeerId, Params> replies;
  for (const ParamsItem& item : params.items) {
    if (item.form != plan_.training_form()) continue;
    std::erase_if(shards_[item.shard.value()].gifts, [&](const Gift& gift) {
      if (VersionMadeBy(gift.step) > item.version) return false;
      std::vector<ParamsItem>& items = replies[gift.giver].items;
      const bool is_wanted = VersionMadeBy(gift.step) == item.version;
      const bool is_first = items.empty() || items.back().shard != item.shard;
      if (is_wanted && is_first) items.push_back(item);
      return true;
    });
  }
  std::erase_if(replies, [](const auto& reply) { return reply.second.items.empty(); });
  return replies;
}

}  // namespace pando
