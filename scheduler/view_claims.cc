#include "scheduler/view_claims.h"

#include <algorithm>

#include "common/mutation.h"
#include "scheduler/run_facts.h"

namespace pando {
namespace {

constexpr Micros kAskInterval = std::chrono::milliseconds(200);

}  // namespace

ViewClaims::ViewClaims(RunFacts& run, const SchedulerOptions& options) : run_(run) {
  if (!options.state || options.is_fresh) return;
  for (const MemberRecord& record : options.state->members)
    from_journal_.insert(record.peer.incarnation);
}

void ViewClaims::OnClaim(Micros now, const PeerId& lane, ViewId id, uint32_t generation) {
  if (run_.seal == nullptr || !run_.views.IsBelievable(id, generation))
    return run_.rollback.OnNewsBeyond(now, run_.Sender(lane), id, generation);
  if (!IsNews(id, generation)) return;
  const auto [at, is_first] = claims_.try_emplace({lane.incarnation, lane.lane});
  Claim& claim = at->second;
  if (is_first && from_journal_.contains(lane.incarnation))
    claim.open_until = now + std::chrono::milliseconds(run_.plan.job.lease_ms);
  if (now < claim.ask_at) return;
  claim.ask_at = now + kAskInterval;
  run_.outbox.Send(lane, ViewWanted{});
}

// Whether a pending rollback does not replace it anyway.
bool ViewClaims::IsNews(ViewId id, uint32_t generation) const {
  return !run_.rollback.is_pending() || id.term >= run_.views.term() ||
         generation >= run_.views.NextGeneration();
}

void ViewClaims::OnViewUpdate(Micros now, const PeerId& lane, const ViewUpdate& update) {
  const View& view = update.view;
  if (run_.seal == nullptr || !run_.phase.is_running() ||
      run_.views.IsOurs(view.id, view.generation))
    return;
  if (const auto claim = claims_.find({lane.incarnation, lane.lane}); claim != claims_.end())
    claim->second.open_until = Micros(0);
  const bool is_genuine =
      run_.seal->IsGenuine(SealedText(run_.outbox.job(), view), update.signature);
  if (!is_genuine && !Mutated(Mutation::kAnyNews)) return run_.seal->OnForged(lane);
  run_.rollback.OnNewsBeyond(now, run_.Sender(lane), view.id, view.generation);
}

Micros ViewClaims::open_until() const {
  Micros until{0};
  if (run_.views.HasAnnounced()) return until;
  for (const auto& [lane, claim] : claims_) until = std::max(until, claim.open_until);
  return until;
}

void ViewClaims::Forget(const Member& member) {
  std::erase_if(claims_,
                [&](const auto& claim) { return claim.first.first == member.peer.incarnation; });
}

}  // namespace pando
