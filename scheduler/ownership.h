// Ownership decides what the scheduler believes of its members (P46): a member may report only what
// is its own, and only what fits its stage. It knows which lanes each shard had in this generation,
// and which workers had each micro-batch in the last views.
#pragma once

#include <deque>
#include <optional>

#include "scheduler/evaluation_rounds.h"

namespace pando {

class Ownership {
 public:
  // `state`: the journal's, if there is one.
  Ownership(const std::optional<SchedulerState>& state, const JobPlan& plan,
            const ViewLedger& views, const EvaluationRounds& evaluations);

  // Whether to hand the message of this member to the part that it concerns.
  bool Admits(const Member& sender, const Envelope& envelope) const;
  // Whether a view that the scheduler has made lately has the worker compute this micro-batch, as
  // its owner or its verifier.
  bool IsComputedBy(NodeId worker, Step step, MicroBatch micro_batch) const;

  // The view has changed.
  void OnView();
  void Forget(const Member& member) { holders_.Forget(member.peer.incarnation); }
  // The journal keeps this.
  const ShardHolders& holders() const { return holders_; }

 private:
  static constexpr size_t kViewsMax = 16;  // bounds last_views_

  bool IsOwn(const Member& sender, const Envelope& envelope) const;

  const JobPlan& plan_;
  const ViewLedger& views_;
  const EvaluationRounds& evaluations_;
  ShardHolders holders_;
  std::deque<View> last_views_;  // this generation's, the newest last
};

}  // namespace pando
