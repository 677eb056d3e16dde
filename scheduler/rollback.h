// Rollback keeps why the run must begin again from a snapshot, until Generations does that (P21).
// While a rollback is pending no view is made and nothing is evaluated or stored. Part of the
// scheduler core. Threads: none.
#pragma once

#include <optional>
#include <string>

#include "scheduler/journaled_outbox.h"
#include "scheduler/ledgers/view_ledger.h"
#include "scheduler/members/member.h"
#include "scheduler/run_phase.h"

namespace pando {

class Rollback {
 public:
  // All outlive the rollback.
  Rollback(const Members& members, JournaledOutbox& outbox, RunPhase& phase, ViewLedger& views)
      : members_(members), outbox_(outbox), phase_(phase), views_(views) {}

  bool is_pending() const { return pending_.has_value(); }
  // No effect if a rollback is pending already.
  void Plan(Micros now, const std::string& reason);
  // REQUIRES: is_pending().
  void DelayUntil(Micros at) { pending_->not_before = at; }
  // Whether there are servers to begin on. `wanted`: the job's number of servers.
  bool IsPossible(Micros now, uint32_t wanted) const;
  // No rollback is pending any more.  Returns its reason.
  std::string Take() { return std::exchange(pending_, std::nullopt)->reason; }

  // P26. A member has a view that the journal does not know.
  void OnNewsBeyond(Micros now, const Member& member, ViewId id, uint32_t generation);
  void OnDivergence(Micros now, const PeerId& from, const Divergence& divergence);

 private:
  struct Pending {
    std::string reason;
    Micros since{0};
    Micros not_before{0};
  };
  const Members& members_;
  JournaledOutbox& outbox_;
  RunPhase& phase_;
  ViewLedger& views_;
  std::optional<Pending> pending_;
  uint32_t divergence_count_ = 0;
};

}  // namespace pando
