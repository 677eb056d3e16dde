// The table that says what follows the exit of a process, by its role and how it ended. Supervisor
// acts on it; node/fleet/fleet names the role and the phase of the run.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pando {

// How a process ended.
enum class ExitKind : uint8_t {
  kLeft,        // exit code 0, or the run had ended for this process before
  kInjected,    // chaos killed it
  kKilled,      // SIGKILL comes from outside: a person, the memory limit
  kSignal,      // another signal may mean a bug, which would recur at the start of a run
  kFailed,      // kExitFailed
  kUnreached,   // kExitUnreached: it waited too long for the scheduler, and may find it now
  kMemberLost,  // kExitMemberLost
  kOther,       // any other code: a decision, which would be the same again
};

// The roles of processes, each with a row of the table.
enum class ExitRole : uint8_t {
  kNewScheduler,  // does not listen yet, so its endpoint is unknown
  kScheduler,
  kMember,       // a server, or one of Pando's own workers
  kScript,       // a worker that is a user's program: only its code 1 has Pando's meaning
  kGroupMember,  // a worker of an allreduce group: the whole group restarts, or no process
  kNodeMember,   // a server or Pando's own worker, started by `pando node`
  kNodeScript,   // a worker that is a user's program, started by `pando node`
};

enum class FleetPhase : uint8_t {
  kGathering,  // not all processes have joined
  kBegun,
  kLeft,  // `pando node` only: a process has left the run
};

enum class AfterExit : char {
  kIgnore = 'I',        // it has done its work, or its end is as good as that
  kRestart = 'R',       // after a pause, unless the process has died too often
  kEnd = 'E',           // no other life follows. `pando train` ends; `pando node` keeps the others
  kRestartGroup = 'G',  // kEnd, but --group-restarts may resume the run from its last snapshot
};

// A row for each ExitRole, a column for each ExitKind, a letter for each FleetPhase.
inline constexpr const char* kExitTable[][8] = {
    // left  injected  kill -9  signal  code 1  code 3  code 5  other
    {"III", "RRR", "EEE", "EEE", "EEE", "EEE", "GGG", "EEE"},  // new scheduler
    {"III", "RRR", "RRR", "ERR", "EEE", "EEE", "GGG", "EEE"},  // scheduler
    {"III", "RRR", "RRR", "ERR", "ERR", "ERR", "EEE", "EEE"},  // member
    {"III", "RRR", "RRR", "ERR", "ERR", "EEE", "EEE", "EEE"},  // script
    {"III", "EGG", "EGG", "EGG", "EEE", "EGG", "EEE", "EEE"},  // group member
    {"III", "RRR", "RRR", "RRR", "RRR", "ERI", "EEE", "EEE"},  // node member
    {"III", "RRR", "RRR", "RRR", "RRR", "EEE", "EEE", "EEE"},  // node script
};

constexpr AfterExit Follow(ExitRole role, ExitKind kind, FleetPhase phase) {
  const char* cell = kExitTable[static_cast<size_t>(role)][static_cast<size_t>(kind)];
  return static_cast<AfterExit>(cell[static_cast<size_t>(phase)]);
}

}  // namespace pando
