// LocalRun: `pando train` without --serial: scheduler, servers and workers as processes of this
// machine, watched until the run ends.
#pragma once

#include <string>

#include "cli/run_folder.h"
#include "common/job.h"

namespace pando {

struct LocalRunArgs {
  Job job;           // resolved and valid
  RunFolder folder;  // made for the job
  bool is_verbose = false;
  std::string program = "/proc/self/exe";  // what runs as scheduler, server and worker
};

// Returns an exit code. The run folder then has a summary, whatever happened.
int RunLocal(const LocalRunArgs& args);

}  // namespace pando
