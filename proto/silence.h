// Silence tracks the lanes that owe this core an answer (P23). A lane may be cut off from this core
// alone, while the scheduler still receives its heartbeats, so this core must report it. Sessions
// use it, and so do lanes, for the lanes whose values they need. Threads: none.
#pragma once

#include <algorithm>
#include <map>
#include <optional>

#include "proto/outbox.h"

namespace pando {

class Silence {
 public:
  // Reports a lane that has owed an answer for `patience`, and again after each half of it.
  explicit Silence(Micros patience) : patience_(patience) {}

  // Notes that the lane was sent a message that it answers at once.
  void Expect(Micros now, const PeerId& lane) { debts_.try_emplace(lane, now, now + patience_); }
  void OnHeard(const PeerId& lane) { debts_.erase(lane); }
  void Clear() { debts_.clear(); }

  // Returns a report that is due, if there is one.
  std::optional<PeerSilent> TakeDue(Micros now) {
    for (auto& [lane, debt] : debts_) {
      if (now < debt.report_at) continue;
      debt.report_at = now + patience_ / 2;
      return PeerSilent{lane, static_cast<uint64_t>((now - debt.since).count()) / 1000};
    }
    return std::nullopt;
  }
  Micros NextDeadline() const {
    Micros deadline = kNever;
    for (const auto& [lane, debt] : debts_) deadline = std::min(deadline, debt.report_at);
    return deadline;
  }

 private:
  struct Debt {
    Debt(Micros since_in, Micros report_at_in) : since(since_in), report_at(report_at_in) {}
    Micros since;
    Micros report_at;
  };
  const Micros patience_;
  std::map<PeerId, Debt> debts_;
};

}  // namespace pando
