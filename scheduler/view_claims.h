// ViewClaims: members that name a view which the scheduler does not know (P26). In a run with keys
// only the view itself, with its signature, proves that the journal has lost it. Part of the
// scheduler core. Threads: none.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "proto/outbox.h"
#include "scheduler/members/member.h"

namespace pando {

struct RunFacts;
struct SchedulerOptions;

class ViewClaims {
 public:
  ViewClaims(RunFacts& run, const SchedulerOptions& options);  // `run` outlives this

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

  RunFacts& run_;
  std::map<std::pair<Incarnation, uint16_t>, Claim> claims_;  // by lane
  // By member of earlier lives: unset while it has claimed nothing.
  std::map<Incarnation, std::optional<Micros>> open_until_;
};

}  // namespace pando
