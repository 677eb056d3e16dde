// Failures handles what processes and supervisors report of failures: a member that cannot
// continue, a process that ended. Part of the scheduler core. Threads: none.
#pragma once

#include <optional>
#include <string>

#include "scheduler/members/membership.h"

namespace pando {

class Failures {
 public:
  struct Parts {  // all outlive this
    RunMembers& membership;
    ViewLedger& views;
    RunPhase& phase;
    const RunProgress& progress;
    FaultLedger& faults;
    RunObserver& observer;
    JournaledOutbox& outbox;
  };
  Failures(const JobPlan& plan, const Parts& parts) : plan_(plan), parts_(parts) {}

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

  const JobPlan& plan_;
  const Parts parts_;
  std::optional<Trouble> trouble_;  // the last
};

}  // namespace pando
