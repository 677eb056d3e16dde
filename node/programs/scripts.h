// Scripts runs the users' programs of a local run, which test and save after their training loop.
// node/fleet/local_run uses it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "node/programs/log_follower.h"
#include "node/shutdown_signal.h"
#include "node/supervisor.h"

namespace pando {

// Threads: its supervisor's thread.
class Scripts {
 public:
  // `supervisor` outlives the scripts. `run_dir` is the run's folder.
  Scripts(Supervisor& supervisor, std::string run_dir)
      : supervisor_(supervisor), run_dir_(std::move(run_dir)) {}

  // Shows the scripts' output. Call it before the first script is started.
  void Show(ShownLogs shown, uint32_t count);
  Status Start(const ProcessSpec& spec);

  // Returns whether there are scripts, and all have ended by themselves.
  bool HaveAllEnded() const;
  // Notes the exit of any process. `is_completed` means that the run is over and its weights are
  // complete.
  void OnExit(const ProcessExit& exit, bool is_completed);

  // Waits, after a completed run, until all scripts have ended. A script that was killed, or that
  // did not see the end of the run, is restarted with the final weights, for the part after its
  // loop. A signal or `pando stop` ends the wait and the scripts.
  void AwaitEnds(ShutdownSignal& shutdown);
  // Shows the rest of their output. REQUIRES: no script is running.
  void Close() { logs_.reset(); }
  // Returns the command's exit code if a script failed after the run, was ended, or needs another
  // run (kExitNextRun); prints why.
  std::optional<int> Conclude() const;

 private:
  struct Script {
    ProcessSpec spec;
    bool has_ended = false;    // by itself
    uint32_t late_starts = 0;  // restarts after the run, for the part after the loop
  };
  void EndHanging();
  Status RestartDead();

  Supervisor& supervisor_;
  const std::string run_dir_;
  std::map<std::string, Script> scripts_;  // by the worker's name
  std::optional<LogFollower> logs_;
  std::optional<ProcessExit> failure_;  // the first unclean end after the run
  bool is_cut_short_ = false;           // on request
  bool needs_next_run_ = false;         // a script has ended with kExitNextRun
};

}  // namespace pando
