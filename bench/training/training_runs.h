// TrainingRuns: `pando train` processes that are at work at the same time, watched from outside
// through their run folders. Used by the benchmarks of training.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "bench/training/step_rows.h"
#include "bench/training/train_flags.h"
#include "cli/launcher.h"
#include "cli/shutdown.h"
#include "common/status.h"

namespace pando::bench {

// Threads: the one that made it. Owns: the processes, of which none outlives it.
class TrainingRuns {
 public:
  using Clock = std::chrono::steady_clock;
  // A machine that is busy with other work may be slow; more than this without a sign is a failure.
  static constexpr std::chrono::seconds kPatience{300};

  // `program`: pando. Runs get folders in `folder`. `shutdown` outlives it.
  TrainingRuns(std::string program, std::string folder, ShutdownSignal& shutdown);
  ~TrainingRuns();

  Status Start(const TrainPlan& plan, const std::vector<std::string>& more_words = {});
  size_t count() const { return names_.size(); }
  std::string RunDir(size_t run) const { return folder_ + "/" + names_[run]; }
  pid_t Pid(size_t run) const { return group_.Pid(names_[run]).value_or(0); }

  // Looks every `interval` until the condition holds. kInterrupted after a signal, kInternal when a
  // run ends by itself, kUnavailable when kPatience goes by.
  Status Await(const std::function<Result<bool>()>& condition, std::chrono::milliseconds interval);

  // Ends them all, in order where they have processes of their own.
  void Stop();

 private:
  void OnExit(const ProcessExit& exit);

  const std::string program_;
  const std::string folder_;
  ShutdownSignal& shutdown_;
  std::vector<std::string> names_;
  Status failure_;
  ProcessGroup group_;
};

}  // namespace pando::bench
