#include "server/replies.h"

#include <algorithm>

#include "proto/item_messages.h"
#include "server/lane_limits.h"

namespace pando {
namespace {

constexpr TreeNode kPulled{0};  // the tree node in a reply to a pull

Version WantedBy(const PushItem& item) { return VersionMadeBy(item.step); }
Version WantedBy(const PullItem& item) { return item.version; }
TreeNode AskedFrom(const PushItem& item) { return item.node; }
TreeNode AskedFrom(const PullItem&) { return kPulled; }

}  // namespace

void Replies::OnPull(const Envelope& envelope, const Pull& pull) {
  Pull others;
  for (const PullItem& item : pull.items) {
    Shard* shard = replicas_.FindPrimary(item.shard);
    if (shard == nullptr && ShowToScheduler(envelope.sender, item)) continue;
    if (shard == nullptr) others.items.push_back(item);
    if (shard == nullptr || item.version > plan_.steps.final_version()) continue;
    Answer(envelope.sender, *shard, {kPulled, item.version, item.form}, /*says_pending=*/true);
  }
  AnswerNotPrimary(envelope, std::move(others));
}

// P33. Gives the scheduler a backup's newest version. It asks only for the final version, which it
// knows to be committed; the backup may not know that.
bool Replies::ShowToScheduler(const PeerId& peer, const PullItem& item) {
  const Replica* replica = peer.node == kSchedulerNode ? replicas_.Find(item.shard) : nullptr;
  if (replica == nullptr || !replica->shard.has_data()) return false;
  const VersionRecord& newest = replica->shard.records().newest();
  if (newest.version != item.version) return false;
  params_out_[peer].items.push_back({item.shard, item.version, ToBlob(newest.parameters)});
  return true;
}

void Replies::OnQuestion(Micros now, const Envelope& envelope, const Question& question) {
  const View& view = member_.view();
  if (question.view != view.id) {  // P17: an answer would belong to another view
    if (question.view < view.id) member_.HintView(now, envelope.sender);
    return;
  }
  SendTo(envelope.sender);  // before the Answer: the worker repeats pushes without a reply (P10)
  pando::Answer answer{question.view, {}};
  for (const auto& [id, replica] : replicas_.all()) {
    if (!replica.is_primary() || !replica.shard.has_data()) continue;
    answer.items.push_back(AnswerFor(replica.shard));
  }
  member_.Send(envelope.sender, std::move(answer));
}

AnswerItem Replies::AnswerFor(const Shard& shard) const {
  const Step step = StepUpdating(shard.committed());
  AnswerItem item{shard.id(), shard.committed(), shard.held_nodes(step), {}};
  if (plan_.steps.staleness() > 0) item.later_nodes = shard.held_nodes(NextStep(step));
  return item;
}

// P9, P10. Sends a committed version that is kept, or the reason why there is none. A new push gets
// no Pending: its reply follows later, and if that is lost, the worker asks. While a shard is being
// restored, every version counts as not made yet.
void Replies::Answer(const PeerId& peer, Shard& shard, const Wanted& wanted, bool says_pending) {
  const auto reply = [&](PushOutcome outcome, Version current) {
    replies_out_[peer].items.push_back({shard.id(), wanted.version, wanted.node, outcome, current});
  };
  if (std::optional<Blob> payload = shard.records().Show(wanted.version, wanted.form)) {
    auto& items = params_out_[peer].items;
    const auto is_same = [&](const ParamsItem& item) {
      return item.shard == shard.id() && item.version == wanted.version && item.form == wanted.form;
    };
    if (std::ranges::none_of(items, is_same))
      items.push_back({shard.id(), wanted.version, *std::move(payload), wanted.form});
  } else if (shard.records().IsGone(wanted.version)) {
    reply(PushOutcome::kBehind, shard.committed());
  } else {
    const uint64_t turn = wanted.version.value() % (plan_.steps.staleness() + 1);
    waiting_[shard.id()][{peer.incarnation, wanted.form, turn}] = {peer, wanted.version};
    if (says_pending) reply(PushOutcome::kPending, {});
  }
}

template <class M>
void Replies::AnswerNotPrimary(const Envelope& envelope, M others) {
  if (others.items.empty()) return;
  if (envelope.view > member_.view().id) {
    Envelope early = envelope;
    early.message = std::move(others);
    return early_.Keep(std::move(early));
  }
  for (const auto& item : others.items) {
    replies_out_[envelope.sender].items.push_back({.shard = item.shard,
                                                   .version = WantedBy(item),
                                                   .node = AskedFrom(item),
                                                   .outcome = PushOutcome::kNotPrimary});
  }
}
template void Replies::AnswerNotPrimary(const Envelope& envelope, Push others);

void Replies::ReplyToWaiting(Shard& shard) {
  const auto of_shard = waiting_.find(shard.id());
  if (of_shard == waiting_.end()) return;
  std::erase_if(of_shard->second, [&](const auto& entry) {
    const auto& [peer, version] = entry.second;
    const ParamsForm form = entry.first.form;
    std::optional<Blob> payload = shard.records().Show(version, form);
    if (!payload) return false;
    params_out_[peer].items.push_back({shard.id(), version, *std::move(payload), form});
    return true;
  });
}

void Replies::Tick(Micros now) {
  for (auto& [peer, reply] : replies_out_) member_.Send(peer, std::move(reply));
  replies_out_.clear();
  const bool is_worth_waiting =
      !params_out_.empty() && !HasFullMessage(params_out_) &&
      replicas_.VersionsDiffer([](const Shard& s) { return s.committed(); });
  if (IsHeld(now, is_worth_waiting, &params_held_until_)) return;
  std::vector<PeerId> peers;
  for (const auto& [peer, params] : params_out_) peers.push_back(peer);
  // Lanes begin at different places among the workers, so that not all of them send to one first.
  const size_t ours = peers.empty() ? 0 : PlaceAmong(peers.size(), member_.self().node);
  std::ranges::rotate(peers, peers.begin() + static_cast<std::ptrdiff_t>(ours));
  for (const PeerId& peer : peers) SendTo(peer);
}

void Replies::EnterView() {
  std::erase_if(waiting_,
                [&](const auto& entry) { return replicas_.FindPrimary(entry.first) == nullptr; });
  primary_bytes_ = 0;
  for (const auto& [id, replica] : replicas_.all()) {
    if (replica.is_primary()) primary_bytes_ += plan_.shards.range(id).size() * sizeof(float);
  }
}

void Replies::SendTo(PeerId peer) {
  if (auto reply = replies_out_.extract(peer)) member_.Send(peer, std::move(reply.mapped()));
  auto params = params_out_.extract(peer);
  if (params.empty()) return;
  std::vector<ParamsItem>& all = params.mapped().items;
  // The next forward reads the older version, and of it low ids, first.
  std::ranges::stable_sort(
      all, {}, [](const ParamsItem& item) { return std::pair(item.version, item.shard); });
  for (auto& items : InMessages(std::move(all), MessageBytesFor(primary_bytes_)))
    member_.Send(peer, Params{std::move(items)});
}

}  // namespace pando
