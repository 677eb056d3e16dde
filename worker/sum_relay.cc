#include "worker/sum_relay.h"

#include <set>
#include <utility>

#include "common/cpu/float_arrays.h"

namespace pando {

void SumRelay::EnterView(const SumGroup& group) {
  group_ = group;
  last_gave_.clear();
  nodes_step_.reset();
  for (ShardState& shard : shards_) shard.leaves_at = kNever;
}

bool SumRelay::IsSound(const PushItem& item) const {
  if (!versions_.HasShard(item.shard) || item.step.value() >= plan_.steps.step_count())
    return false;
  if (item.payload.size_bytes() != plan_.pushes.PayloadBytes(item.shard)) return false;
  const MicroBatchTree tree = plan_.steps.Tree(item.step);
  return item.node.value() < tree.node_bound() && tree.IsCanonical(item.node);
}

bool SumRelay::OnPush(const PeerId& from, const Push& push) {
  if (!plan_.may_sum_near()) return false;
  for (const PushItem& item : push.items) {
    if (!IsSound(item) || VersionMadeBy(item.step) <= versions_.known(item.shard)) continue;
    versions_.LearnAll(plan_.steps.VersionReadBy(item.step));
    if (!Keep(item.shard, {from, item.step, item.node, item.payload})) continue;
    Add(item.shard, {.step = item.step, .node = item.node, .payload = item.payload});
  }
  return true;
}

// False: the giver has as many gifts here as it may have.
bool SumRelay::Keep(ShardId shard, Gift gift) {
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

void SumRelay::RestoreGifts() {
  for (uint32_t s = 0; s < shards_.size(); ++s) {
    for (const Gift& gift : shards_[s].gifts) {
      if (VersionMadeBy(gift.step) > versions_.known(ShardId(s)))
        Add(ShardId(s), {.step = gift.step, .node = gift.node, .payload = gift.payload});
    }
  }
}

void SumRelay::OnQuestion(const PeerId& from, const Question& question) {
  if (!plan_.may_sum_near()) return;
  Answer answer{.view = question.view, .items = {}};
  for (uint32_t s = 0; s < shards_.size(); ++s) {
    if (!Sums(ShardId(s))) continue;
    AnswerItem item{ShardId(s), versions_.known(ShardId(s)), {}, {}};
    const Step step = StepUpdating(item.version);
    for (const Gift& gift : shards_[s].gifts) {
      if (gift.giver != from) continue;
      if (gift.step == step) item.nodes.push_back(gift.node);
      if (gift.step == NextStep(step) && plan_.steps.staleness() > 0)
        item.later_nodes.push_back(gift.node);
    }
    answer.items.push_back(std::move(item));
  }
  member_.Send(from, std::move(answer));
}

void SumRelay::OnCommitted(ShardId shard, Version version) {
  ShardState& state = shards_[shard.value()];
  if (VersionMadeBy(state.waiting_step) <= version) state.leaves_at = kNever;
  std::erase_if(state.gifts, [&](const Gift& gift) { return VersionMadeBy(gift.step) < version; });
  for (Gift& gift : state.gifts) {
    if (VersionMadeBy(gift.step) == version) gift.payload = Blob();
  }
}

void SumRelay::OnParams(const ParamsItem& item, Replies* replies) {
  if (item.form != plan_.training_form()) return;
  std::set<PeerId> told;
  std::erase_if(shards_[item.shard.value()].gifts, [&](const Gift& gift) {
    if (VersionMadeBy(gift.step) > item.version) return false;
    const bool is_wanted = VersionMadeBy(gift.step) == item.version;
    if (is_wanted && told.insert(gift.giver).second) (*replies)[gift.giver].items.push_back(item);
    return true;
  });
}

// ---- sums --------------------------------------------------------------------------------------

void SumRelay::Add(ShardId shard, UnrepliedGradient gradient) {
  const Step step = gradient.step;
  if (gradients_.Contains(shard, step, gradient.node)) return;
  const MicroBatchTree tree = plan_.steps.Tree(step);
  while (gradient.node != MicroBatchTree::kRoot) {
    const std::optional<Blob> sibling =
        gradients_.TakeUnsent(shard, step, tree.Sibling(gradient.node));
    if (!sibling) break;
    const bool is_left = tree.IsLeft(gradient.node);
    gradient.payload =
        Sum(shard, is_left ? gradient.payload : *sibling, is_left ? *sibling : gradient.payload);
    gradient.node = tree.Parent(gradient.node);
  }
  gradients_.DropUnsentBelow(shard, step, gradient.node);
  gradients_.Add(shard, std::move(gradient));
}

// left + right, the gradients of two siblings.
Blob SumRelay::Sum(ShardId shard, const Blob& left, const Blob& right) {
  std::optional<BufferPool>& pool = shards_[shard.value()].pool;
  if (!pool) pool.emplace(plan_.shards.range(shard).size(), buffers_);
  const SharedBuffer sum = pool->Take();
  AddSpans(sum->data(), left.floats(), right.floats());
  return ToBlob(sum);
}

Micros SumRelay::LeavesAt(Micros now, ShardId shard, const UnrepliedGradient& sum,
                          Micros patience) {
  if (!Sums(shard) || !WaitsForOthers(sum.step, sum.node)) return now;
  ShardState& state = shards_[shard.value()];
  const bool is_new_step = std::exchange(state.waiting_step, sum.step) != sum.step;
  if (is_new_step || state.leaves_at == kNever) state.leaves_at = now + patience;
  return state.leaves_at;
}

// Whether the node is only a part of a sum that the givers and we can make.
bool SumRelay::WaitsForOthers(Step step, TreeNode node) {
  const MicroBatchTree tree = plan_.steps.Tree(step);
  if (nodes_step_ != step) {
    std::vector<NodeId> givers = group_.workers;
    std::erase_if(givers, [&](NodeId worker) {
      const auto last = last_gave_.find(worker);
      const bool gives = last != last_gave_.end() && NextStep(last->second) >= step;
      return worker != member_.self().node && !gives;
    });
    nodes_ = NodesFor(givers, member_.view(), step, tree);
    nodes_step_ = step;
  }
  return std::ranges::any_of(nodes_, [&](TreeNode ours) { return tree.IsAncestor(ours, node); });
}

}  // namespace pando
