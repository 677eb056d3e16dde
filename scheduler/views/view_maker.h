// ViewMaker makes views: which processes take part, where the shards are and which worker computes
// which micro-batches (P17, P24). A generation's first view begins from a snapshot (P21).
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "scheduler/members/votes.h"
#include "scheduler/placement/owner_plan.h"
#include "scheduler/views/view_claims.h"

namespace pando {

class ViewMaker {
 public:
  ViewMaker(const JobPlan& plan, ViewLedger& views, RunPhase& phase, const RunMembers& membership,
            const ViewClaims& claims, Silences& silences, Snapshots& snapshots,
            const GradientComparison& verification, OwnerPlan& owners, const Votes& votes)
      : plan_(plan),
        views_(views),
        phase_(phase),
        membership_(membership),
        claims_(claims),
        silences_(silences),
        snapshots_(snapshots),
        verification_(verification),
        owners_(owners),
        votes_(votes) {}

  // Requests a view a bit later: processes and replicas that become ready together share it.
  void RequestSoon(Micros now);
  void OnSynced(Micros now, const PeerId& from, const Synced& synced);

  // Returns whether all members that the job wants are ready to begin.
  bool IsComplete() const;
  // Returns whether a planned rollback can begin: all members have reported, and there are servers.
  bool MayRollBack(Micros now) const;
  // Makes the first view of a generation: when the run begins or is resumed, or after a rollback.
  View MakeFirst(Micros now);
  // Makes the view that is due.  Returns none if no view is due, or if it plans a rollback instead.
  std::optional<View> MakeDue(Micros now);
  Micros NextDeadline() const;

 private:
  void AddSynced(View& next);
  // Returns the members that get no new replicas now.
  std::set<NodeId> Avoided(Micros now) const {
    std::set<NodeId> avoided = silences_.Avoided(now);
    avoided.merge(votes_.Distrusted());
    return avoided;
  }

  const JobPlan& plan_;
  ViewLedger& views_;
  RunPhase& phase_;
  const RunMembers& membership_;
  const ViewClaims& claims_;
  Silences& silences_;
  Snapshots& snapshots_;
  const GradientComparison& verification_;
  OwnerPlan& owners_;
  const Votes& votes_;
  // By shard, the newcomers that their primaries have reported in sync.
  std::set<std::pair<uint32_t, SyncingBackup>> synced_;
  Micros made_at_{0};  // the last view that was due
};

}  // namespace pando
