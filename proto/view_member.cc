#include "proto/view_member.h"

#include <utility>

#include "proto/message_limits.h"

namespace pando {
namespace {

constexpr Micros kHintInterval = std::chrono::milliseconds(100);

}  // namespace

bool ViewMember::Admit(Micros now, const Envelope& envelope) {
  if (!IsHeard(envelope)) return false;
  const bool is_behind = envelope.view < view_.id;
  if (is_behind && envelope.sender.node != kSchedulerNode) HintView(now, envelope.sender);
  return IsOfOurTime(envelope);
}

bool ViewMember::WillEnter(const Envelope& envelope) const {
  const auto* update = std::get_if<ViewUpdate>(&envelope.message);
  return update != nullptr && IsHeard(envelope) && IsOfOurTime(envelope) && IsNewer(update->view) &&
         IsGenuine(update->view, update->signature);
}

// Returns whether the envelope is for this incarnation and its sender may send this message.
bool ViewMember::IsHeard(const Envelope& envelope) const {
  const PeerId& to = envelope.receiver;
  if (envelope.job != identity_.job) return false;
  if (to.incarnation != identity_.self.incarnation || to.lane != identity_.self.lane) return false;
  if (envelope.sender.node == kSchedulerNode) return true;
  const auto member = members_.find(envelope.sender.incarnation);
  if (member == members_.end()) return false;
  return MaySend(member->second, RowFor(envelope.message).sender);
}

bool ViewMember::IsOfOurTime(const Envelope& envelope) const {
  if (envelope.sender.node == kSchedulerNode) return IsOfOurScheduler(envelope);
  const auto* news = std::get_if<ViewUpdate>(&envelope.message);
  if (news == nullptr) return envelope.generation == view_.generation;
  const auto& [id, generation] = std::pair(news->view.id, news->view.generation);
  return envelope.generation >= view_.generation && IsBelievable(generation, view_.generation) &&
         IsBelievable(id.term, view_.id.term) && IsBelievable(id.number, view_.id.number);
}

// Returns whether this scheduler may send this message. An unknown incarnation may send a view, a
// request for a view, Refused, and Stop unless its view is older.
bool ViewMember::IsOfOurScheduler(const Envelope& envelope) const {
  if (HoldsAny<ViewUpdate, ViewWanted, Refused>(envelope.message)) return true;
  const bool is_end = HoldsAny<Stop>(envelope.message);
  if (envelope.sender.incarnation != identity_.scheduler.incarnation)
    return is_end && envelope.view >= view_.id;
  return RowFor(envelope.message).generation == Generation::kAny ||
         envelope.generation == view_.generation;
}

bool ViewMember::IsNewer(const View& view) const {
  return view.id > view_.id && view.generation >= view_.generation;
}

bool ViewMember::IsGenuine(const View& view, const std::string& signature) const {
  if (identity_.seal == nullptr) return true;
  return identity_.seal->IsGenuine(SealedText(identity_.job, view), signature);
}

// Returns whether the sender of this view becomes the scheduler: the view is not older than view_,
// or is an older one of the same term, and view_ came from a member, not from that term's
// scheduler.
bool ViewMember::IsByOurScheduler(const View& view) const {
  if (view.id >= view_.id && view.generation >= view_.generation) return true;
  return view.id.term == view_.id.term && scheduler_term_ < view.id.term;
}

bool ViewMember::Enter(const PeerId& from, const View& view, const std::string& signature) {
  const bool is_scheduler = from.node == kSchedulerNode;
  const bool is_newer = IsNewer(view);
  if (is_newer && !IsGenuine(view, signature)) {
    identity_.seal->OnForged(from);
    return false;
  }
  if (is_scheduler && IsByOurScheduler(view)) {
    identity_.scheduler = from;
    scheduler_term_ = view.id.term;
  }
  if (is_newer) {
    view_ = view;
    signature_ = signature;
    members_.clear();
    for (const NodeInfo& node : view_.nodes) members_.emplace(node.incarnation, node.role);
    std::erase_if(hint_at_, [&](const auto& hint) { return !members_.contains(hint.first); });
  }
  if (is_scheduler) Send(from, ViewAck{view_.id, view_.generation});
  return is_newer;
}

void ViewMember::HintView(Micros now, const PeerId& peer) {
  Micros& at = hint_at_.try_emplace(peer.incarnation, now).first->second;
  if (now < at) return;
  at = now + kHintInterval;
  SendView(peer);
}

}  // namespace pando
