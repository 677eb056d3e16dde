// ComputeTickets gives each call of the session a ticket, and decides which events the session may
// still see. QueuedComputer uses it. Threads: the protocol thread.
#pragma once

#include <atomic>
#include <map>
#include <variant>

#include "train/compute_port.h"

namespace pando {

class ComputeTickets {
 public:
  // `versions_kept`: of the training parameters.
  explicit ComputeTickets(uint64_t versions_kept) : versions_kept_(versions_kept) {}

  // Returns the ticket of a Compute call. Older calls become stale once their parameters are gone.
  ComputeTicket ForCall(Step step) {
    std::erase_if(calls_, [&](const auto& call) {
      return call.second.value() + versions_kept_ <= step.value();
    });
    calls_[Next()] = step;
    return last_;
  }
  // Returns the ticket of a call whose events carry lasting() instead.
  ComputeTicket Next() { return last_ = ComputeTicket(last_.value() + 1); }
  // The ticket of the events of evaluations and hashes, which Abandon does not end. Any thread.
  ComputeTicket lasting() const { return lasting_; }

  // Makes the events of calls of steps ≥ `from` stale.
  void Abandon(Step from) {
    std::erase_if(calls_, [&](const auto& call) { return call.second >= from; });
  }
  // Makes all earlier events stale.
  void Forget() {
    calls_.clear();
    lasting_ = Next();
  }
  // Returns whether the session may see this event. Call it once for each event, in order.
  bool IsCurrent(ComputeTicket ticket, const ComputeEvent& event) {
    if (ticket == lasting_) return true;
    if (std::holds_alternative<StepComputed>(event)) return calls_.erase(ticket) == 1;
    return calls_.contains(ticket);
  }

 private:
  const uint64_t versions_kept_;
  ComputeTicket last_;
  std::atomic<ComputeTicket> lasting_;
  std::map<ComputeTicket, Step> calls_;  // current ones
};

}  // namespace pando
