// Scripts: the users' programs of a local run, whose scripts go on after their loop: they test,
// save and plot. Used by node/local_run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "node/programs/log_follower.h"
#include "node/shutdown_signal.h"
#include "node/supervisor.h"

namespace pando {

// Threads: its supervisor's.
class Scripts {
 public:
  // `supervisor` outlives the scripts. `run_dir`: of the run.
  Scripts(Supervisor& supervisor, std::string run_dir)
      : supervisor_(supervisor), run_dir_(std::move(run_dir)) {}

  // Before the first is started.
  void Show(ShownLogs shown, uint32_t count);
  Status Start(const ProcessSpec& spec);

  bool Contains(const std::string& name) const { return scripts_.contains(name); }
  // Whether there are scripts, and all have ended by themselves.
  bool HaveAllEnded() const;
  // Call it for the exit of any process. `is_completed`: the run is over, and its weights are
  // complete.
  void OnExit(const ProcessExit& exit, bool is_completed);

  // After a completed run: waits until all have ended. A script that has been killed, or that did
  // not see the end of the run, is started again with the final weights, for what follows its loop.
  // A signal, and `pando stop`, end the wait and the scripts.
  void AwaitEnds(ShutdownSignal& shutdown);
  // Shows what is left of their prints.  REQUIRES: none is running.
  void Close() { logs_.reset(); }
  // The exit code of the command, if a script failed after the run or was ended. Prints the cause.
  std::optional<int> Conclude() const;

 private:
  struct Script {
    ProcessSpec spec;
    bool has_ended = false;    // by itself
    uint32_t late_starts = 0;  // after the run, for what follows the loop
  };
  void EndHanging();
  Status RestartDead();

  Supervisor& supervisor_;
  const std::string run_dir_;
  std::map<std::string, Script> scripts_;  // by the worker's name
  std::optional<LogFollower> logs_;
  std::optional<ProcessExit> failure_;  // the first end after the run that is not clean
  bool is_cut_short_ = false;           // on request
};

}  // namespace pando
