#include "worker/sum_giver.h"

#include <utility>

namespace pando {

void SumGiver::EnterView(const SumGroup& group) {
  group_ = group;
  const std::map<PeerId, Relay> before = std::exchange(relays_, {});
  const NodeInfo* us = FindNode(member_.view(), member_.self().node);
  for (uint32_t s = 0; s < group_.relays.size(); ++s) {
    const PeerId& peer = group_.relays[s];
    if (peer.node == kUnknownNode || peer == member_.self()) continue;
    const auto [at, is_new] = relays_.try_emplace(peer);
    Relay& relay = at->second;
    relay.shards.emplace_back(s);
    if (!is_new) continue;
    const NodeInfo* info = FindNode(member_.view(), peer.node);
    relay.is_far = us != nullptr && info != nullptr && us->host != info->host;
    const auto known = before.find(peer);
    relay.is_given_up = known != before.end() && known->second.is_given_up;
    if (relay.is_given_up) relay.ask_at = Micros(0);
  }
}

const PeerId* SumGiver::GivesTo(ShardId shard) const {
  if (relays_.empty()) return nullptr;
  const auto relay = relays_.find(group_.relays[shard.value()]);
  return relay == relays_.end() || relay->second.is_given_up ? nullptr : &relay->first;
}

bool SumGiver::OnAnswer(Micros now, const PeerId& from, const Answer& answer) {
  Relay& relay = relays_.at(from);
  if (std::exchange(relay.is_given_up, false)) ++changes_;
  relay.ask_at = now + Quiet(relay);
  const std::optional<Micros> asked_at = std::exchange(relay.asked_since, std::nullopt);
  if (!asked_at || answer.view != member_.view().id) return false;
  for (const AnswerItem& item : answer.items) {
    if (!group_.IsRelay(item.shard, from)) continue;
    const bool is_judged = requests_.asked_at(item.shard) + kQuiet <= *asked_at;
    versions_.Learn(item.shard, item.version);
    if (is_judged) gradients_.JudgeGiven(item);
  }
  return true;
}

void SumGiver::Tick(Micros now) {
  for (auto& [peer, relay] : relays_) {
    if (now >= relay.ask_at) TickRelay(now, peer, relay);
  }
}

Micros SumGiver::NextDeadline() const {
  Micros next = kNever;
  for (const auto& [peer, relay] : relays_) next = std::min(next, relay.ask_at);
  return next;
}

void SumGiver::TickRelay(Micros now, const PeerId& peer, Relay& relay) {
  if (!relay.is_given_up) {
    if (gradients_.GivenBytes(relay.shards) == 0) {
      relay.ask_at = kNever;
      relay.asked_since.reset();
      return;
    }
    if (!relay.asked_since) relay.asked_since = now;
    if (now - *relay.asked_since >= Patience(relay)) {
      relay.is_given_up = true;
      ++changes_;
      gradients_.TakeBackGiven(relay.shards);
    }
  }
  relay.interval = std::min(2 * relay.interval, LaneRequests::kRetryMax);
  const Micros again = relay.is_far ? relay.interval : kAskAgain;
  relay.ask_at = now + (relay.is_given_up ? kAskGivenUp : again);
  member_.Send(peer, Question{member_.view().id});
}

// Returns the time after which a relay that has sent something is asked.
Micros SumGiver::Quiet(Relay& relay) {
  relay.interval = LaneRequests::kRetryFirst;
  return relay.is_far ? relay.interval : kQuiet;
}

Micros SumGiver::Patience(const Relay& relay) const {
  if (!relay.is_far)
    return kPatience + Micros(gradients_.GivenBytes(relay.shards) / kSlowestBytesPerMicro);
  size_t bytes = 0;
  for (const auto& [peer, other] : relays_) bytes += gradients_.GivenBytes(other.shards);
  return kPatienceFar + Micros(bytes / LaneRequests::kSlowestBytesPerMicro) +
         kStepsFar * clock_.usual().value_or(Micros(0));
}

}  // namespace pando
