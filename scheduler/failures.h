// Failures handles what processes and supervisors report of failures: a member that cannot
// continue, a process that ended. Part of the scheduler core. Threads: none.
#pragma once

#include <optional>
#include <string>

#include "scheduler/snapshot_requests.h"

namespace pando {

class Failures {
 public:
  // Both outlive this.
  Failures(RunFacts& run, LastSnapshot& last_snapshot) : run_(run), last_snapshot_(last_snapshot) {}

  void OnFailure(Micros now, const Envelope& envelope, const Failure& failure);
  // A supervisor reports a fault that it made, or a process that ended: the fastest of notices.
  void OnFaultNote(Micros now, const PeerId& from, const FaultNote& note);
  // Tells the observer of faults that have changed since the last call.
  void ReportFaults(Micros now);

 private:
  struct Trouble {  // one machine's own
    std::string host;
    Version committed;  // by then
  };
  bool ConcernsAll(const Member& member);

  RunFacts& run_;
  LastSnapshot& last_snapshot_;
  std::optional<Trouble> trouble_;  // the last
};

}  // namespace pando
