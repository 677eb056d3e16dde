// The part of Session that sums with the other workers of its host (P6a).
#include <algorithm>
#include <utility>

#include "common/mutation.h"
#include "proto/message_parts.h"
#include "worker/session.h"

namespace pando {

// ---- as the relay ------------------------------------------------------------------------------

// Adds a gradient to those that wait for their siblings. One that is in another already is dropped.
void Session::AddPush(ShardId id, Unreplied push) {
  std::vector<Unreplied>& pushes = shards_[id.value()].pushes;
  const MicroBatchTree tree = plan_.steps.Tree(push.step);
  const bool is_there = std::ranges::any_of(pushes, [&](const Unreplied& other) {
    return other.step == push.step &&
           (other.node == push.node || tree.IsAncestor(other.node, push.node));
  });
  if (is_there) return;
  while (push.node != MicroBatchTree::kRoot) {
    const auto sibling = std::ranges::find_if(pushes, [&](const Unreplied& other) {
      return other.step == push.step && other.node == tree.Sibling(push.node) && !other.is_sent;
    });
    if (sibling == pushes.end()) break;
    const bool is_left = tree.IsLeft(push.node);
    push.payload = host_.Sum(id, is_left ? push.payload : sibling->payload,
                             is_left ? sibling->payload : push.payload);
    push.node = tree.Parent(push.node);
    pushes.erase(sibling);
  }
  std::erase_if(pushes, [&](const Unreplied& other) {
    return other.step == push.step && !other.is_sent && tree.IsAncestor(push.node, other.node);
  });
  pushes.push_back(std::move(push));
}

// From another worker of our host. That it could be sent proves that the version which it was made
// with is committed everywhere (P4). Late ones are not answered: who gave them asks. While nothing
// of ours may be pushed nobody is to rely on us.
void Session::OnMessageOf(Micros now, const PeerId& from, const Push& push) {
  if (!plan_.may_sum_on_host() || !bad_pictures_.is_settled()) return;
  for (const PushItem& item : push.items) {
    if (item.shard.value() >= shards_.size() || item.step.value() >= plan_.steps.step_count() ||
        item.payload.size_bytes() != plan_.pushes.PayloadBytes(item.shard))
      continue;
    if (VersionMadeBy(item.step) <= shards_[item.shard.value()].known) continue;
    const MicroBatchTree tree = plan_.steps.Tree(item.step);
    const bool is_node = item.node.value() < tree.node_bound() && tree.IsCanonical(item.node);
    if (!is_node) continue;
    for (uint32_t s = 0; s < shards_.size(); ++s)
      LearnCommitted(ShardId(s), VersionReadBy(item.step));
    if (!host_.Keep(item.shard, {from, item.step, item.node, item.payload})) continue;
    AddPush(item.shard, {item.step, item.node, item.payload});
  }
  AdvanceWork(now);
}

// Work of ours was abandoned, and with it sums that others had a part in.
void Session::RestoreGifts() {
  for (uint32_t s = 0; s < shards_.size(); ++s) {
    for (const HostRelay::Gift& gift : host_.gifts(ShardId(s))) {
      if (VersionMadeBy(gift.step) > shards_[s].known)
        AddPush(ShardId(s), {gift.step, gift.node, gift.payload});
    }
  }
}

// What a lane would say of what it holds: here of what the asker gave.
void Session::OnMessageOf(Micros, const PeerId& from, const Question& question) {
  if (!plan_.may_sum_on_host() || !bad_pictures_.is_settled()) return;
  Answer answer{.view = question.view, .items = {}};
  for (uint32_t s = 0; s < shards_.size(); ++s) {
    AnswerItem item{ShardId(s), shards_[s].known, {}};
    for (const HostRelay::Gift& gift : host_.gifts(ShardId(s))) {
      const bool is_theirs = gift.giver == from && gift.step == StepReading(item.version);
      if (is_theirs) item.nodes.push_back(gift.node);
    }
    answer.items.push_back(std::move(item));
  }
  member_.Send(from, std::move(answer));
}

// ---- as one who gives --------------------------------------------------------------------------

// What it lacks is given again, unless it may have been under way when this was said; versions that
// it knows of are pulled.
void Session::OnRelayAnswer(Micros now, const Answer& answer) {
  const std::optional<Micros> asked_at = host_.NoteAnswer(now);
  if (!asked_at || answer.view != member_.view().id) return;
  for (const AnswerItem& item : answer.items) {
    if (item.shard.value() >= shards_.size()) continue;
    ShardState& shard = shards_[item.shard.value()];
    const bool is_judged = shard.asked_at + HostRelay::kQuiet <= *asked_at;
    LearnCommitted(item.shard, item.version);
    for (Unreplied& push : shard.pushes) {
      const bool is_held = StepReading(item.version) == push.step &&
                           std::ranges::find(item.nodes, push.node) != item.nodes.end();
      if (push.is_given && is_judged && !is_held) push.is_given = push.is_sent = false;
    }
  }
  if (questions_.empty()) AdvanceWork(now);
}

size_t Session::BytesOwedByRelay() const {
  size_t bytes = 0;
  for (const ShardState& shard : shards_) {
    for (const Unreplied& push : shard.pushes)
      bytes += push.is_given ? push.payload.size_bytes() : 0;
  }
  return bytes;
}

void Session::AskRelay(Micros now) {
  if (now < host_.ask_at()) return;
  switch (host_.TakeDue(now, BytesOwedByRelay())) {
    case HostRelay::Due::kNothing:
      return;
    case HostRelay::Due::kAsk:
      return member_.Send(host_.group().relay, Question{member_.view().id});
    case HostRelay::Due::kGiveUp:
      return TakeBackGifts();
  }
}

// Whether all that is ours of the step is here, to be pushed or in a sum with others' parts.
bool Session::IsAllHere(const ShardState& shard, Step step) {
  const Work* work = FindWork(step);
  if (work == nullptr) return true;
  const MicroBatchTree tree = plan_.steps.Tree(step);
  return std::ranges::all_of(work->issued, [&](MicroBatch m) {
    return std::ranges::any_of(shard.pushes, [&](const Unreplied& push) {
      if (push.step != step) return false;
      const MicroBatchRange range = tree.Range(push.node);
      return m.value() >= range.first && m.value() < range.last;
    });
  });
}

// They go to the lanes.
void Session::TakeBackGifts() {
  if (Mutated(Mutation::kGiveOnce)) return;
  for (ShardState& shard : shards_) {
    for (Unreplied& push : shard.pushes) {
      if (push.is_given) push.is_given = push.is_sent = false;
    }
  }
}

}  // namespace pando
