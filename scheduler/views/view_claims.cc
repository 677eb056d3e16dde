#include "scheduler/views/view_claims.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace pando {
namespace {

constexpr Micros kAskInterval = std::chrono::milliseconds(200);

}  // namespace

ViewClaims::ViewClaims(const SchedulerOptions& options, const SchedulerPart& part,
                       RunMembers& membership)
    : SchedulerPart(part), seal_(options.seal), membership_(membership) {
  if (!options.state || options.is_resumed) return;
  for (const MemberRecord& record : options.state->members) open_until_[record.peer.incarnation];
}

void ViewClaims::OnClaim(Micros now, const PeerId& lane, ViewId id, uint32_t generation) {
  if (seal_ == nullptr || !views_.IsBelievable(id, generation))
    return OnNewsBeyond(now, membership_.members().Sender(lane), id, generation);
  if (!IsNews(id, generation)) return;
  const auto open = open_until_.find(lane.incarnation);
  if (open != open_until_.end() && !open->second)
    open->second = now + std::chrono::milliseconds(plan_.job.lease_ms);
  Claim& claim = claims_[{lane.incarnation, lane.lane}];
  if (now < claim.ask_at) return;
  claim.ask_at = now + kAskInterval;
  claim.is_asked = true;
  outbox_.Send(lane, ViewWanted{});
}

// Returns whether the claim matters: a planned rollback may already replace the view.
bool ViewClaims::IsNews(ViewId id, uint32_t generation) const {
  return !phase_.is_rolling_back() || id.term >= views_.term() ||
         generation >= views_.NextGeneration();
}

void ViewClaims::OnViewUpdate(Micros now, const PeerId& lane, const ViewUpdate& update) {
  const View& view = *update.view;
  const auto claim = claims_.find({lane.incarnation, lane.lane});
  if (claim == claims_.end() || !std::exchange(claim->second.is_asked, false)) return;
  if (const auto open = open_until_.find(lane.incarnation); open != open_until_.end())
    open->second = Micros(0);
  if (!IsClaim(view.id, view.generation)) return;
  const bool is_genuine = seal_->IsGenuine(SealedText(outbox_.job(), view), update.signature);
  if (!is_genuine) return seal_->OnForged(lane);
  OnNewsBeyond(now, membership_.members().Sender(lane), view.id, view.generation);
}

// Either the journal's end was lost with a disk, or another scheduler leads the run. In the second
// case the Commit here fails.
void ViewClaims::OnNewsBeyond(Micros now, const Member& member, ViewId id, uint32_t generation) {
  if (!views_.IsBelievable(id, generation)) {
    const std::string text = fmt::format(
        "{} names view {}.{} of generation {}, which this run cannot have reached; test the memory "
        "of {}",
        member.Name(), id.term, id.number, generation, member.registration.host);
    outbox_.TellNotable(now, "refused", member.Name(), "{}", text);
    // A bit may have flipped, so the process may join again once.
    const bool is_first = doubted_.insert(ProcessFor(member.registration)).second;
    for (const PeerId& lane : member.Peers())
      outbox_.Send(lane,
                   Refused{text, is_first ? RefusalKind::kGivenUp : RefusalKind::kNotThisOne});
    return membership_.OnDeath(now, member.peer.node, "refused", "message");
  }
  views_.OnNewsBeyond(id, generation);
  if (phase_.is_rolling_back() || !outbox_.Commit()) return;
  outbox_.TellNotable(now, "journal-behind", member.Name(),
                      "{} has a view that is not in the journal", member.Name());
  phase_.PlanRollback(now, "the journal had lost its last views");
}

Micros ViewClaims::open_until() const {
  Micros until{0};
  if (views_.HasAnnounced()) return until;
  for (const auto& [member, open] : open_until_) until = std::max(until, open.value_or(until));
  return until;
}

void ViewClaims::Forget(const Member& member) {
  open_until_.erase(member.peer.incarnation);
  std::erase_if(claims_,
                [&](const auto& claim) { return claim.first.first == member.peer.incarnation; });
}

}  // namespace pando
