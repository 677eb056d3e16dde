// Failures handles reports of members that cannot continue, and of ended processes.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "scheduler/last_snapshot.h"

namespace pando {

class Failures : SchedulerPart {
 public:
  Failures(const SchedulerPart& part, FaultLedger& faults, const RunProgress& progress,
           RunMembers& membership, LastSnapshot& last_snapshot)
      : SchedulerPart(part),
        faults_(faults),
        progress_(progress),
        membership_(membership),
        last_snapshot_(last_snapshot) {}

  void OnFailure(Micros now, const Envelope& envelope, const Failure& failure);
  // Handles a supervisor's report of a fault or an exit, which is the earliest sign of a death.
  void OnFaultNote(Micros now, const PeerId& from, const FaultNote& note);

 private:
  struct Trouble {
    FailureKind kind;
    std::string host;
    Version committed;  // the committed version when it occurred
  };
  static constexpr size_t kFailedMax = 64;

  bool EndsRun(const Member& member, const Failure& failure);
  bool ConcernsAll(const Member& member, FailureKind kind);
  void NoteFailed(const ProcessName& process, const std::string& text);

  FaultLedger& faults_;
  const RunProgress& progress_;
  RunMembers& membership_;
  LastSnapshot& last_snapshot_;
  std::optional<Trouble> trouble_;  // the last one
  // The processes whose training failed, and why.
  std::map<ProcessName, std::string> failed_;
};

}  // namespace pando
