#include "worker/host_relay.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/add_floats.h"

namespace pando {

HostRelay::HostRelay(const JobPlan& plan, BufferSource buffers)
    : plan_(plan), buffers_(std::move(buffers)), shards_(plan.shards.shard_count()) {}

void HostRelay::Enter(const View& view, const PeerId& self) {
  const PeerId relay = group_.relay;
  group_ = HostGroupOf(view, self, plan_);
  is_relay_ = group_.has_relay() && group_.relay == self;
  view_ = is_relay_ ? view : View();
  is_given_up_ = is_given_up_ && group_.has_relay() && group_.relay == relay;
  last_gave_.clear();
  nodes_step_.reset();
  look_again_at_ = kNever;
  ask_at_ = is_given_up_ ? Micros(0) : kNever;
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

void HostRelay::NoteParams(Micros now) {
  if (is_given_up_) return;
  asked_since_.reset();
  ask_at_ = now + kQuiet;
}

std::optional<Micros> HostRelay::NoteAnswer(Micros now) {
  is_given_up_ = false;
  ask_at_ = now + kQuiet;
  return std::exchange(asked_since_, std::nullopt);
}

HostRelay::Due HostRelay::TakeDue(Micros now, size_t owed_bytes) {
  if (now < ask_at_) return Due::kNothing;
  if (is_given_up_) {
    ask_at_ = now + kAskGivenUp;
    return Due::kAsk;
  }
  if (owed_bytes == 0) {
    ask_at_ = kNever;
    asked_since_.reset();
    return Due::kNothing;
  }
  if (!asked_since_) asked_since_ = now;
  const Micros patience = kPatience + Micros(owed_bytes / kSlowestBytesPerMicro);
  is_given_up_ = now - *asked_since_ >= patience;
  ask_at_ = now + (is_given_up_ ? kAskGivenUp : kAskAgain);
  return is_given_up_ ? Due::kGiveUp : Due::kAsk;
}

// ---- who is given ------------------------------------------------------------------------------

bool HostRelay::Sums(ShardId shard) const { return is_relay_ && group_.sums[shard.value()]; }

bool HostRelay::Keep(ShardId shard, Gift gift) {
  Step& last = last_gave_.try_emplace(gift.giver.node, gift.step).first->second;
  last = std::max(last, gift.step);
  std::vector<Gift>& gifts = shards_[shard.value()].gifts;
  size_t count = 0;  // of this giver
  for (const Gift& other : gifts) {
    if (other.giver != gift.giver) continue;
    if (other.step == gift.step && other.node == gift.node) return true;
    ++count;
  }
  if (count >= kGiftsPerMicroBatchMax * plan_.job.micro_batches) return false;
  gifts.push_back(std::move(gift));
  return true;
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

void HostRelay::TakeReplies(const ParamsItem& item, std::map<PeerId, Params>* replies) {
  if (item.form != plan_.training_form()) return;
  std::set<PeerId> told;
  std::erase_if(shards_[item.shard.value()].gifts, [&](const Gift& gift) {
    if (VersionMadeBy(gift.step) > item.version) return false;
    const bool is_wanted = VersionMadeBy(gift.step) == item.version;
    if (is_wanted && told.insert(gift.giver).second) (*replies)[gift.giver].items.push_back(item);
    return true;
  });
}

}  // namespace pando
