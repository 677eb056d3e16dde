// ViewMaker makes views: which processes take part, where the shards are, and which worker computes
// what (P17, P24). The first view of a generation is made for a snapshot (P21).
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "scheduler/placement/owner_plan.h"
#include "scheduler/views/view_claims.h"

namespace pando {

class ViewMaker {
 public:
  ViewMaker(const JobPlan& plan, ViewLedger& views, RunPhase& phase, const RunMembers& membership,
            const ViewClaims& claims, Silences& silences, Snapshots& snapshots,
            const GradientComparison& verification, OwnerPlan& owners)
      : plan_(plan),
        views_(views),
        phase_(phase),
        membership_(membership),
        claims_(claims),
        silences_(silences),
        snapshots_(snapshots),
        verification_(verification),
        owners_(owners) {}

  // Joiners and newcomers in sync come in groups: requests one view for all of them.
  void RequestForGroup(Micros now);
  void OnSynced(Micros now, const PeerId& from, const Synced& synced);

  // Whether all members that the job wants are ready to begin.
  bool IsComplete() const;
  // Whether a planned rollback can take place: every member has reported, and there are servers.
  bool MayRollBack(Micros now) const;
  // Makes a generation's first view: the first one of all, or the first after a rollback.
  View MakeFirst(Micros now);
  // Makes the view that is due.  Returns none if no view is due, or if it is a rollback instead.
  std::optional<View> MakeDue(Micros now);
  Micros NextDeadline() const;

 private:
  void AddSynced(View& next);

  const JobPlan& plan_;
  ViewLedger& views_;
  RunPhase& phase_;
  const RunMembers& membership_;
  const ViewClaims& claims_;
  Silences& silences_;
  Snapshots& snapshots_;
  const GradientComparison& verification_;
  OwnerPlan& owners_;
  // The newcomers that are in sync, as their sources say, by shard.
  std::set<std::pair<uint32_t, SyncingBackup>> synced_;
};

}  // namespace pando
