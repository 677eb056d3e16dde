#include "proto/view_member.h"

#include <utility>

#include "proto/message_limits.h"
#include "proto/view_delta.h"

namespace pando {
namespace {

// Between two hints to a peer, and two requests for a view; and the time in which a new view
// reaches most members from the scheduler, so that they need no hint.
constexpr Micros kHintInterval = std::chrono::milliseconds(100);

const std::string& SignatureIn(const Message& message) {
  const auto* update = std::get_if<ViewUpdate>(&message);
  return update != nullptr ? update->signature : std::get<ViewDelta>(message).signature;
}

}  // namespace

bool ViewMember::Admit(Micros now, const Envelope& envelope) {
  if (!IsHeard(envelope)) return false;
  if (!may_hint_at_) may_hint_at_ = now + kHintInterval;
  const bool is_behind = envelope.view < view_->id;
  if (is_behind && envelope.sender.node != kSchedulerNode) HintView(now, envelope.sender);
  return IsOfOurTime(envelope);
}

std::optional<SharedView> ViewMember::BroughtBy(const Message& message) const {
  if (const auto* update = std::get_if<ViewUpdate>(&message)) return update->view;
  const auto* delta = std::get_if<ViewDelta>(&message);
  if (delta == nullptr) return std::nullopt;
  const ViewChange& change = *delta->change;
  const bool is_known = applied_ && (*applied_)->id == change.id && applied_->hash() == change.hash;
  if (!is_known || change.base != view_->id || change.base_hash != view_.hash())
    applied_ = Apply(view_, change);
  return applied_;
}

std::optional<SharedView> ViewMember::NextView(const Envelope& envelope) const {
  if (!HoldsAny<ViewUpdate, ViewDelta>(envelope.message)) return std::nullopt;
  if (!IsHeard(envelope) || !IsOfOurTime(envelope)) return std::nullopt;
  std::optional<SharedView> view = BroughtBy(envelope.message);
  const bool fits = view && (!fits_ || fits_(**view));
  const bool is_next = fits && IsNewer((*view)->id, (*view)->generation) &&
                       IsGenuine(**view, SignatureIn(envelope.message));
  return is_next ? view : std::nullopt;
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
  if (std::holds_alternative<ViewWanted>(envelope.message)) return true;  // of any generation
  const auto* update = std::get_if<ViewUpdate>(&envelope.message);
  const bool is_hint = std::holds_alternative<ViewHint>(envelope.message);
  if (update == nullptr && !is_hint) return envelope.generation == view_->generation;
  const ViewId id = is_hint ? envelope.view : update->view->id;
  const uint32_t generation = is_hint ? envelope.generation : update->view->generation;
  return envelope.generation >= view_->generation && IsBelievable(generation, view_->generation) &&
         IsBelievable(id.term, view_->id.term) && IsBelievable(id.number, view_->id.number);
}

// Returns whether this scheduler may send this message. An unknown incarnation may send a view, a
// request for a view, Refused, and Stop unless its view is older.
bool ViewMember::IsOfOurScheduler(const Envelope& envelope) const {
  if (HoldsAny<ViewUpdate, ViewDelta, ViewWanted, Refused>(envelope.message)) return true;
  const bool is_end = HoldsAny<Stop>(envelope.message);
  if (envelope.sender.incarnation != identity_.scheduler.incarnation)
    return is_end && envelope.view >= view_->id;
  return RowFor(envelope.message).generation == Generation::kAny ||
         envelope.generation == view_->generation;
}

bool ViewMember::IsNewer(ViewId id, uint32_t generation) const {
  return id > view_->id && generation >= view_->generation;
}

bool ViewMember::IsGenuine(const View& view, const std::string& signature) const {
  if (identity_.seal == nullptr) return true;
  return identity_.seal->IsGenuine(SealedText(identity_.job, view), signature);
}

// Returns whether the sender of this view becomes the scheduler: the view is not older than view_,
// or is an older one of the same term, and view_ came from a member, not from that term's
// scheduler.
bool ViewMember::IsByOurScheduler(ViewId id, uint32_t generation) const {
  if (id >= view_->id && generation >= view_->generation) return true;
  return id.term == view_->id.term && scheduler_term_ < id.term;
}

// Makes the sender of a view the scheduler, if it is one.
void ViewMember::Follow(const PeerId& from, ViewId id, uint32_t generation) {
  if (from.node != kSchedulerNode || !IsByOurScheduler(id, generation)) return;
  identity_.scheduler = from;
  scheduler_term_ = id.term;
}

void ViewMember::Acknowledge(const PeerId& from) {
  if (from.node == kSchedulerNode) Send(from, ViewAck{view_->id, view_->generation});
}

bool ViewMember::OnView(Micros now, const Envelope& envelope) {
  const std::optional<SharedView> brought = BroughtBy(envelope.message);
  if (brought && fits_ && !fits_(**brought)) return false;
  if (brought) return Enter(envelope.sender, *brought, SignatureIn(envelope.message));
  const ViewChange& change = *std::get<ViewDelta>(envelope.message).change;
  if (IsNewer(change.id, change.generation)) {
    AskForView(now, envelope.sender);
  } else {
    Follow(envelope.sender, change.id, change.generation);
    Acknowledge(envelope.sender);
  }
  return false;
}

bool ViewMember::Enter(const PeerId& from, const SharedView& view, const std::string& signature) {
  const bool is_newer = IsNewer(view->id, view->generation);
  if (is_newer && !IsGenuine(*view, signature)) {
    identity_.seal->OnForged(from);
    return false;
  }
  Follow(from, view->id, view->generation);
  if (is_newer) {
    view_ = view;
    signature_ = signature;
    members_.clear();
    for (const NodeInfo& node : view_->nodes) members_.emplace(node.incarnation, node.role);
    hint_at_.clear();
    answer_at_.clear();
    may_hint_at_.reset();
  }
  Acknowledge(from);
  return is_newer;
}

// While a view spreads, most members get it from the scheduler without a hint.
void ViewMember::HintView(Micros now, const PeerId& peer) {
  Micros& at = hint_at_.try_emplace(peer.incarnation, may_hint_at_.value_or(now)).first->second;
  if (now < at) return;
  at = now + kHintInterval;
  Send(peer, ViewHint{});
}

// Only a member that needs the view is answered, and not more often than it asks.
void ViewMember::OnViewWanted(Micros now, const Envelope& envelope) {
  if (envelope.sender.node != kSchedulerNode) {
    Micros& at = answer_at_.try_emplace(envelope.sender.incarnation, now).first->second;
    if (envelope.view >= view_->id || now < at) return;
    at = now + kHintInterval / 2;
  }
  SendView(envelope.sender);
}

void ViewMember::OnHint(Micros now, const Envelope& envelope) {
  if (IsNewer(envelope.view, envelope.generation)) AskForView(now, envelope.sender);
}

void ViewMember::AskForView(Micros now, const PeerId& peer) {
  if (now < ask_at_) return;
  ask_at_ = now + kHintInterval;
  Send(peer, ViewWanted{});
}

}  // namespace pando
