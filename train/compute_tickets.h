// ComputeTickets gives each call of the session a ticket, and decides which events the session may
// still see. QueuedComputer uses it. Threads: the protocol thread.
#pragma once

#include <atomic>
#include <map>
#include <variant>

#include "train/compute_port.h"
#include "train/parameter_store.h"

namespace pando {

class ComputeTickets {
 public:
  // For a Compute call. Older calls become stale once their parameters are gone.
  ComputeTicket ForCall(Step step) {
    std::erase_if(calls_, [&](const auto& call) {
      return call.second.value() + kTrainingVersionsKept <= step.value();
    });
    calls_[Next()] = step;
    return last_;
  }
  // For a call whose events carry lasting() instead.
  ComputeTicket Next() { return last_ = ComputeTicket(last_.value() + 1); }
  // For evaluations and hashes, which Abandon does not end. Any thread.
  ComputeTicket lasting() const { return lasting_; }

  // Events of calls of steps ≥ `from` are stale.
  void Abandon(Step from) {
    std::erase_if(calls_, [&](const auto& call) { return call.second >= from; });
  }
  // All earlier events are stale.
  void Forget() {
    calls_.clear();
    lasting_ = Next();
  }
  // Whether the session may see this event. Called once for each event, in the order of the events.
  bool IsCurrent(ComputeTicket ticket, const ComputeEvent& event) {
    if (ticket == lasting_) return true;
    if (std::holds_alternative<StepComputed>(event)) return calls_.erase(ticket) == 1;
    return calls_.contains(ticket);
  }

 private:
  ComputeTicket last_;
  std::atomic<ComputeTicket> lasting_;
  std::map<ComputeTicket, Step> calls_;  // current ones
};

}  // namespace pando
