// LocalRun: `pando train` without --serial, and `pando resume`: scheduler, servers and workers as
// processes of this machine, kept running until the run ends.
#pragma once

#include <string>

#include "node/chaos.h"
#include "node/supervisor.h"
#include "plan/job.h"
#include "run/run_folder.h"

namespace pando {

struct LocalRunArgs {
  Job job;  // resolved and valid
  RunFolder folder;
  bool is_resumed = false;  // the folder holds a run that goes on
  uint64_t step_count = 0;
  ChaosPlan chaos;
  uint32_t restarts_max = kRestartsMaxDefault;
  uint32_t group_restarts = 0;  // with allreduce: from the last snapshot, after a death
  bool is_verbose = false;
  std::string program = "/proc/self/exe";  // what runs as scheduler, server and worker
};

// Returns an exit code. The run folder then has a summary in every case; with kExitFenced it is
// that of another scheduler, which leads the run there.
int RunLocal(const LocalRunArgs& args);

}  // namespace pando
