// ViewClaims handles members that name a view which the scheduler does not know (P26). In a run
// with keys only the view itself, with its signature, proves that the journal has lost it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "scheduler/members/run_members.h"

namespace pando {

class ViewClaims {
 public:
  ViewClaims(const SchedulerOptions& options, const JobPlan& plan, ViewLedger& views,
             JournaledOutbox& outbox, RunPhase& phase, RunMembers& membership);

  // Whether this view is not ours, while the run needs its views.
  bool IsClaim(ViewId id, uint32_t generation) const {
    return phase_.is_running() && !views_.IsOurs(id, generation);
  }
  // Whether the message may be the answer to a request for a claimed view.
  bool MayBeProof(const Message& message) const { return seal_ && HoldsAny<ViewUpdate>(message); }
  // The lane of a member names this view, which is not ours. With keys it is asked for the view.
  void OnClaim(Micros now, const PeerId& lane, ViewId id, uint32_t generation);
  // Its answer; others do not count, as a check takes time. A rollback is planned if the view is
  // genuine and not ours.
  void OnViewUpdate(Micros now, const PeerId& lane, const ViewUpdate& update);
  // No view may be announced before, so that it does not hide a lost one. A member of the journal
  // has a lease's time for its proof, once.
  Micros open_until() const;
  void Forget(const Member& member);

 private:
  struct Claim {
    Micros ask_at{0};
    bool is_asked = false;
  };
  bool IsNews(ViewId id, uint32_t generation) const;
  void OnNewsBeyond(Micros now, const Member& member, ViewId id, uint32_t generation);

  const JobPlan& plan_;
  ViewSeal* const seal_;  // null: the run has no keys
  ViewLedger& views_;
  JournaledOutbox& outbox_;
  RunPhase& phase_;
  RunMembers& membership_;
  std::map<std::pair<Incarnation, uint16_t>, Claim> claims_;  // the lanes' claims
  // The members of earlier lives; unset while a member has claimed nothing.
  std::map<Incarnation, std::optional<Micros>> open_until_;
  std::set<ProcessName> doubted_;  // the processes that have named views which cannot be
};

}  // namespace pando
