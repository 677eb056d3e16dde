// RunLock: one scheduler at a time keeps a run folder (P25). The lock goes with its process,
// however that ends. Held by the scheduler process; asked for before a folder is emptied.
#pragma once

#include <string>

#include "common/atomic_file.h"
#include "common/status.h"

namespace pando {

class RunLock {
 public:
  // kAlreadyExists names the holder: process and machine.
  static Result<RunLock> Acquire(const std::string& run_dir);

 private:
  explicit RunLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace pando
