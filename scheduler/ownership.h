// Ownership decides what the scheduler believes of its members (P46): a member may report only what
// is its own, and only what fits its stage. It knows which lanes each shard had in this generation,
// and which workers had each micro-batch in the last views. Part of the scheduler core.
// Threads: none.
#pragma once

#include <deque>
#include <optional>

#include "scheduler/evaluations.h"

namespace pando {

class Ownership {
 public:
  // `run` and `evaluations` outlive this. `state`: what the journal has, if there is one.
  Ownership(const RunFacts& run, const EvaluationRounds& evaluations,
            const std::optional<SchedulerState>& state);

  // Whether to hand the message of this member to the part that it concerns.
  bool Admits(const Member& sender, const Envelope& envelope) const;
  // Whether a view that the scheduler has made lately has the worker compute this micro-batch, as
  // its owner or its verifier.
  bool IsComputedBy(NodeId worker, Step step, MicroBatch micro_batch) const;

  // The view has changed.
  void OnView();
  void Forget(const Member& member) { holders_.Forget(member.peer.incarnation); }
  // For the journal.
  const ShardHolders& holders() const { return holders_; }

 private:
  static constexpr size_t kViewsMax = 16;  // of which reports of gradient hashes are taken

  bool IsOwn(const Member& sender, const Envelope& envelope) const;

  const RunFacts& run_;
  const EvaluationRounds& evaluations_;
  ShardHolders holders_;
  std::deque<View> views_;  // the newest last; of this generation
};

}  // namespace pando
