// Ownership decides which reports of its members the scheduler believes (P46): a member may report
// only about its own shards and work, and only what fits its stage. Ownership keeps the lanes that
// each shard had in this generation, and the workers of each micro-batch in the last views.
#pragma once

#include <deque>
#include <optional>

#include "scheduler/evaluation/evaluation_rounds.h"

namespace pando {

class Ownership {
 public:
  // `state`: the journal's, if there is one.
  Ownership(const std::optional<SchedulerState>& state, const JobPlan& plan,
            const ViewLedger& views, const EvaluationRounds& evaluations);

  // Returns whether this message of the member may go to the part that it concerns.
  bool Admits(const Member& sender, const Envelope& envelope) const;
  // Returns whether one of the last views names the worker as this micro-batch's owner or verifier.
  bool IsComputedBy(NodeId worker, Step step, MicroBatch micro_batch) const;

  // Adds the new view.
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
  std::deque<View> last_views_;  // of this generation, the newest last
};

}  // namespace pando
