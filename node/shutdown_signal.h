// ShutdownSignal: SIGINT, SIGTERM, SIGHUP and SIGUSR1 as a descriptor that event loops poll, so
// that a process leaves by its own rules instead of where it happens to stand. SIGUSR1 is a batch
// system's notice (sbatch --signal=USR1@120). All except SIGTERM stay ignored if they were (nohup).
#pragma once

#include <chrono>

#include "common/atomic_file.h"

namespace pando {

// What asks a process to leave its run: signals, or the program that a worker is part of.
class ShutdownRequests {
 public:
  virtual ~ShutdownRequests() = default;
  // Readable while a request waits to be taken.
  virtual int fd() const = 0;
  // Takes one request: the signal's number, or 0 if none waits. Never blocks.
  virtual int Take() = 0;
  // The first one taken; 0 before any.
  virtual int first_signal() const = 0;
};

// Construct it in main, before any thread: the signals are blocked in the constructing thread and
// in all that it starts later. Threads: any may poll fd(); one calls Take().
class ShutdownSignal : public ShutdownRequests {
 public:
  ShutdownSignal();
  int fd() const override { return fd_.get(); }
  // Takes one signal: its number, or 0 if none waits. Never blocks. The first one again within
  // kOneRequest is the same request (`timeout` signals the process, and then its group). So are
  // SIGUSR1 later, and the next signal after SIGUSR1: a supervisor passes that on as SIGTERM.
  static constexpr std::chrono::milliseconds kOneRequest{100};
  int Take() override;
  int first_signal() const override { return first_signal_; }

 private:
  UniqueFd fd_;
  int first_signal_ = 0;
  std::chrono::steady_clock::time_point first_at_;
};

}  // namespace pando
