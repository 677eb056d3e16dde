// ViewClaims handles claims: messages of members that name a view unknown to the scheduler (P26).
// In a run with keys only the view itself, with its signature, proves that the journal has lost it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "scheduler/members/run_members.h"

namespace pando {

class ViewClaims : SchedulerPart {
 public:
  ViewClaims(const SchedulerOptions& options, const SchedulerPart& part, RunMembers& membership);

  // Returns whether the scheduler does not know this view, in a run that has begun.
  bool IsClaim(ViewId id, uint32_t generation) const {
    return phase_.is_running() && !views_.IsOurs(id, generation);
  }
  // Returns whether the message may be the answer to a request for a claimed view.
  bool MayBeProof(const Message& message) const { return seal_ && HoldsAny<ViewUpdate>(message); }
  // Handles a claim of this view by a member's lane. With keys it asks the lane for the view.
  void OnClaim(Micros now, const PeerId& lane, ViewId id, uint32_t generation);
  // Handles the lane's answer; plans a rollback if the view is genuine and unknown. A view that was
  // not asked for is ignored, because a check takes time.
  void OnViewUpdate(Micros now, const PeerId& lane, const ViewUpdate& update);
  // Returns the time before which no view may be announced, so that it does not hide a lost one. A
  // member of the journal has a lease's time for its proof, once.
  Micros open_until() const;
  void Forget(const Member& member);

 private:
  struct Claim {
    Micros ask_at{0};
    bool is_asked = false;
  };
  bool IsNews(ViewId id, uint32_t generation) const;
  void OnNewsBeyond(Micros now, const Member& member, ViewId id, uint32_t generation);

  ViewSeal* const seal_;  // null: the run has no keys
  RunMembers& membership_;
  std::map<std::pair<Incarnation, uint16_t>, Claim> claims_;  // by lane
  // By member of earlier lives, when its time ends; unset while it has claimed nothing.
  std::map<Incarnation, std::optional<Micros>> open_until_;
  std::set<ProcessName> doubted_;  // processes that have named an impossible view
};

}  // namespace pando
