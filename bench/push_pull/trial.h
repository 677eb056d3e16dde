// A trial: starts the processes of one measurement, lets them warm up, reads their counters and
// processor clocks over a window of time, and kills them.
#pragma once

#include <string>
#include <vector>

#include "bench/harness/scratch_folder.h"
#include "bench/push_pull/load.h"
#include "cli/shutdown.h"
#include "common/status.h"

namespace pando::bench {

struct TrialTimes {
  double warm_up_s = 0.2;
  double window_s = 0.5;
};

struct TrialFigures {
  double gb_per_s = 0.0;  // pushed and pulled payload
  double messages_per_s = 0.0;
  double latency_p50_us = 0.0;  // push to reply
  double latency_p99_us = 0.0;
  double cpu_s_per_gb = 0.0;  // of all processes of the trial
};

enum class RawKind : uint8_t { kTcp, kZmqTcp, kZmqIpc };

// Runs trials one after the other. Threads: the one that made it. Owns: a folder for sockets and
// logs, which goes with it; no process outlives the call that started it, nor this process.
class TrialRunner {
 public:
  // `shutdown` outlives it; a signal ends a trial (kInterrupted).
  static Result<TrialRunner> Create(TrialTimes times, ShutdownSignal& shutdown);

  Result<TrialFigures> RunPando(const Load& load, bool is_ipc);
  Result<TrialFigures> RunRaw(const Load& load, RawKind kind);

 private:
  struct Peer {
    std::string name;
    std::vector<std::string> args;  // after the slot
    bool counts = false;            // its slot has payload and latencies
  };
  TrialRunner(TrialTimes times, ShutdownSignal& shutdown, ScratchFolder folder)
      : times_(times), shutdown_(shutdown), folder_(std::move(folder)) {}
  Result<TrialFigures> Run(const std::vector<Peer>& peers);

  TrialTimes times_;
  ShutdownSignal& shutdown_;
  ScratchFolder folder_;
};

}  // namespace pando::bench
