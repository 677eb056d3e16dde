// RunLock: one scheduler at a time keeps a run folder (P25). The lock goes with its process,
// however that ends. Held by the scheduler process; asked for before a folder is emptied.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "common/descriptor.h"
#include "common/status.h"

namespace pando {

class RunLock {
 public:
  // How long a process that was killed may take to end: one of its threads may still write.
  static constexpr std::chrono::milliseconds kDyingMax{10'000};
  // Waits for a holder that is ending already. kAlreadyExists names the holder: process and
  // machine.
  static Result<RunLock> Acquire(const std::string& run_dir,
                                 std::chrono::milliseconds dying_max = kDyingMax);
  // The process of this machine that holds the lock; none: it is free, or its holder is elsewhere.
  static std::optional<pid_t> FindHolder(const std::string& run_dir);

 private:
  explicit RunLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace pando
