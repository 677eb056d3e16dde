// Exit codes of every pando command, as `pando --help` lists them.
#pragma once

#include "common/status.h"

namespace pando {

inline constexpr int kExitCompleted = 0;
inline constexpr int kExitFailed = 1;         // the run failed: a process died, data became bad
inline constexpr int kExitUsage = 2;          // a flag, key, file, folder or port is unusable
inline constexpr int kExitUnreached = 3;      // a peer was not reached, or start_timeout_ms passed
inline constexpr int kExitFenced = 4;         // a scheduler found that another one leads its run
inline constexpr int kExitMemberLost = 5;     // a scheduler's group (allreduce) has lost a member
inline constexpr int kExitOutOfMemory = 6;    // not enough memory for the job
inline constexpr int kExitInterrupted = 130;  // Ctrl-C or SIGTERM, as in shells: 128 + SIGINT
// A script asks `pando run` for its next run (NEXT_RUN_STATUS in python/pando_train/_run.py). No
// command ends with it.
inline constexpr int kExitNextRun = 86;

inline constexpr const char* kExitCodesHelp =
    "Exit codes: 0 completed, 1 failed, 2 bad flag, key or input, 3 peer not reached in time,\n"
    "4 another scheduler leads the run, 5 a scheduler whose allreduce group has lost a worker,\n"
    "6 out of memory, 130 interrupted.";

// Returns the exit code of a command that stops on `status`. REQUIRES: !status.ok().
inline int ExitCodeFor(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kCorrupt:
    case StatusCode::kNotFound:
    case StatusCode::kAlreadyExists:
    case StatusCode::kNoSpace:
      return kExitUsage;
    case StatusCode::kUnavailable:
      return kExitUnreached;
    case StatusCode::kInterrupted:
      return kExitInterrupted;
    default:
      return kExitFailed;
  }
}

// Turns the error of an unusable --bind into that of a flag, which the user must change.
inline Status BadBind(const Status& status) { return InvalidArgument(status.message()); }

}  // namespace pando
