// Rollback keeps why the run must begin again from a snapshot, until Generations does that (P21).
// While a rollback is pending no view is made and nothing is evaluated or stored. Part of the
// scheduler core. Threads: none.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "scheduler/members/member.h"

namespace pando {

struct RunFacts;

class Rollback {
 public:
  explicit Rollback(RunFacts& run) : run_(run) {}  // `run` outlives this

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
  RunFacts& run_;
  std::optional<Pending> pending_;
  uint32_t divergence_count_ = 0;
};

}  // namespace pando
