// RunLock lets only one scheduler at a time use a run folder (P25). The lock always ends with its
// process. The scheduler process holds it; other code tries it before it empties a folder.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "common/result.h"
#include "common/unique_fd.h"

namespace pando {

class RunLock {
 public:
  // How long to wait for a killed process to end, since one of its threads may still write.
  static constexpr std::chrono::milliseconds kDyingMax{10'000};
  // Takes the lock. Waits for a holder that is already ending. kAlreadyExists names the holder's
  // process and machine.
  static Result<RunLock> Acquire(const std::string& run_dir,
                                 std::chrono::milliseconds dying_max = kDyingMax);
  // Returns the process of this machine that holds the lock; none: it is free or held elsewhere.
  static std::optional<pid_t> FindHolder(const std::string& run_dir);

 private:
  explicit RunLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace pando
