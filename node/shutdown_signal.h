// ShutdownSignal makes a descriptor of SIGINT, SIGTERM, SIGHUP and SIGUSR1. Event loops poll it, so
// that a process leaves in order instead of in the middle of its work. SIGUSR1 is a batch system's
// notice (sbatch --signal=USR1@120). All signals except SIGTERM stay ignored if they were (nohup).
#pragma once

#include <chrono>

#include "common/unique_fd.h"

namespace pando {

// Requests to a process to leave its run: signals, or calls of the program that has the worker.
class ShutdownRequests {
 public:
  virtual ~ShutdownRequests() = default;
  // Readable while a request waits.
  virtual int fd() const = 0;
  // Takes one request: the signal's number, or 0 if none waits. Never blocks.
  virtual int Take() = 0;
  // The first request that was taken; 0 before any.
  virtual int first_signal() const = 0;
};

// Construct it in main, before any thread: it blocks the signals in the constructing thread and in
// all threads that start later. Threads: any may poll fd(); one calls Take().
class ShutdownSignal : public ShutdownRequests {
 public:
  ShutdownSignal();
  int fd() const override { return fd_.get(); }
  // Takes one signal: its number, or 0 if none waits. Never blocks. The first one again within
  // kOneRequest is the same request (`timeout` signals the process, and then its group). So are
  // SIGUSR1 later, and the next signal after SIGUSR1, which a supervisor passes on as SIGTERM.
  static constexpr std::chrono::milliseconds kOneRequest{100};
  int Take() override;
  int first_signal() const override { return first_signal_; }

 private:
  UniqueFd fd_;
  int first_signal_ = 0;
  std::chrono::steady_clock::time_point first_at_;
};

}  // namespace pando
