#include "worker/host_giver.h"

namespace pando {

void HostGiver::EnterView(const HostGroup& group) {
  const bool is_same_relay = group.has_relay() && group.relay == group_.relay;
  group_ = group;
  has_relay_ = group.has_relay() && group.relay != member_.self();
  has_given_up_ = has_given_up_ && is_same_relay;
  ask_at_ = has_given_up_ ? Micros(0) : kNever;
  asked_since_.reset();
}

bool HostGiver::OnAnswer(Micros now, const Answer& answer) {
  has_given_up_ = false;
  ask_at_ = now + kQuiet;
  const std::optional<Micros> asked_at = std::exchange(asked_since_, std::nullopt);
  if (!asked_at || answer.view != member_.view().id) return false;
  for (const AnswerItem& item : answer.items) {
    if (!versions_.HasShard(item.shard)) continue;
    const bool is_judged = requests_.asked_at(item.shard) + kQuiet <= *asked_at;
    versions_.Learn(item.shard, item.version);
    if (is_judged) gradients_.JudgeGiven(item);
  }
  return true;
}

void HostGiver::Tick(Micros now) {
  if (now < ask_at_) return;
  if (has_given_up_) {
    ask_at_ = now + kAskGivenUp;
    return member_.Send(group_.relay, Question{member_.view().id});
  }
  const size_t owed_bytes = gradients_.given_bytes();
  if (owed_bytes == 0) {
    ask_at_ = kNever;
    asked_since_.reset();
    return;
  }
  if (!asked_since_) asked_since_ = now;
  const Micros patience = kPatience + Micros(owed_bytes / kSlowestBytesPerMicro);
  if (now - *asked_since_ >= patience) return GiveUp(now);
  ask_at_ = now + kAskAgain;
  member_.Send(group_.relay, Question{member_.view().id});
}

void HostGiver::GiveUp(Micros now) {
  has_given_up_ = true;
  ask_at_ = now + kAskGivenUp;
  gradients_.TakeBackGiven();
}

}  // namespace pando
