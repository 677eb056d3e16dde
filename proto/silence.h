// Silence keeps account of the lanes that owe an answer (P23). A lane can be cut off from us alone,
// while the scheduler hears its heartbeats: somebody has to say so. Used by the session, and by lanes
// for the lanes whose values they need.
// Threads: none.
#pragma once

#include <algorithm>
#include <map>
#include <optional>

#include "proto/outbox.h"

namespace pando {

class Silence {
 public:
  // A lane that has owed an answer for `patience` is reported, and again after half of that.
  explicit Silence(Micros patience) : patience_(patience) {}

  // The lane was asked something that it answers at once.
  void Expect(Micros now, const PeerId& lane) { debts_.try_emplace(lane, now, now + patience_); }
  void OnHeard(const PeerId& lane) { debts_.erase(lane); }
  void Clear() { debts_.clear(); }

  // The report that is due, if one is.
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
