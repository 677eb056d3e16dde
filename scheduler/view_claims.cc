#include "scheduler/view_claims.h"

#include <algorithm>
#include <utility>

#include "common/mutation.h"
#include "scheduler/run_facts.h"

namespace pando {
namespace {

constexpr Micros kAskInterval = std::chrono::milliseconds(200);

}  // namespace

ViewClaims::ViewClaims(RunFacts& run, const SchedulerOptions& options) : run_(run) {
  if (!options.state || options.is_fresh) return;
  for (const MemberRecord& record : options.state->members) open_until_[record.peer.incarnation];
}

void ViewClaims::OnClaim(Micros now, const PeerId& lane, ViewId id, uint32_t generation) {
  if (run_.seal == nullptr || !run_.views.IsBelievable(id, generation))
    return run_.rollback.OnNewsBeyond(now, run_.Sender(lane), id, generation);
  if (!IsNews(id, generation)) return;
  const auto open = open_until_.find(lane.incarnation);
  if (open != open_until_.end() && !open->second)
    open->second = now + std::chrono::milliseconds(run_.plan.job.lease_ms);
  Claim& claim = claims_[{lane.incarnation, lane.lane}];
  if (now < claim.ask_at) return;
  claim.ask_at = now + kAskInterval;
  claim.is_asked = true;
  run_.outbox.Send(lane, ViewWanted{});
}

// Whether a pending rollback does not replace it anyway.
bool ViewClaims::IsNews(ViewId id, uint32_t generation) const {
  return !run_.rollback.is_pending() || id.term >= run_.views.term() ||
         generation >= run_.views.NextGeneration();
}

void ViewClaims::OnViewUpdate(Micros now, const PeerId& lane, const ViewUpdate& update) {
  const View& view = update.view;
  const auto claim = claims_.find({lane.incarnation, lane.lane});
  if (claim == claims_.end() || !std::exchange(claim->second.is_asked, false)) return;
  if (const auto open = open_until_.find(lane.incarnation); open != open_until_.end())
    open->second = Micros(0);
  if (!run_.phase.is_running() || run_.views.IsOurs(view.id, view.generation)) return;
  const bool is_genuine =
      run_.seal->IsGenuine(SealedText(run_.outbox.job(), view), update.signature);
  if (!is_genuine && !Mutated(Mutation::kAnyNews)) return run_.seal->OnForged(lane);
  run_.rollback.OnNewsBeyond(now, run_.Sender(lane), view.id, view.generation);
}

Micros ViewClaims::open_until() const {
  Micros until{0};
  if (run_.views.HasAnnounced()) return until;
  for (const auto& [member, open] : open_until_) until = std::max(until, open.value_or(until));
  return until;
}

void ViewClaims::Forget(const Member& member) {
  open_until_.erase(member.peer.incarnation);
  std::erase_if(claims_,
                [&](const auto& claim) { return claim.first.first == member.peer.incarnation; });
}

}  // namespace pando
