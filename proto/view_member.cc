#include "proto/view_member.h"

namespace pando {
namespace {

constexpr Micros kHintInterval = std::chrono::milliseconds(100);

template <class... Ms>
bool IsOneOf(const Message& message) {
  return (std::holds_alternative<Ms>(message) || ...);
}

bool IsSchedulersWord(const Message& message) {
  return IsOneOf<Welcome, Refused, Scalars, ProgressAck, Evaluate, ReleasePin, Stop>(message);
}

}  // namespace

bool ViewMember::Admit(Micros now, const Envelope& envelope) {
  const PeerId& to = envelope.receiver;
  if (envelope.job != identity_.job || envelope.generation != view_.generation) return false;
  if (to.incarnation != identity_.self.incarnation || to.lane != identity_.self.lane) return false;
  if (envelope.sender.incarnation == identity_.scheduler.incarnation) return true;
  if (!members_.contains(envelope.sender.incarnation)) return false;
  if (IsSchedulersWord(envelope.message)) return false;
  if (envelope.view < view_.id) HintView(now, envelope.sender);
  return true;
}

bool ViewMember::Enter(const PeerId& from, const View& view) {
  if (from.incarnation == identity_.scheduler.incarnation) Send(from, ViewAck{view.id});
  if (view.id <= view_.id) return false;
  view_ = view;
  members_.clear();
  for (const NodeInfo& node : view_.nodes) members_.insert(node.incarnation);
  std::erase_if(hint_at_, [&](const auto& hint) { return !members_.contains(hint.first); });
  return true;
}

void ViewMember::HintView(Micros now, const PeerId& peer) {
  Micros& at = hint_at_.try_emplace(peer.incarnation, now).first->second;
  if (now < at) return;
  at = now + kHintInterval;
  Send(peer, ViewUpdate{view_});
}

}  // namespace pando
