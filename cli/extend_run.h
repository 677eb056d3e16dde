// A run that goes on beyond its end, in another folder; its own stays as it is (`pando resume
// --epochs, --steps`; run_commands.cc).
#pragma once

#include <string>

#include "common/status.h"
#include "plan/job_plan.h"
#include "run/run_folder.h"

namespace pando {

// Makes the folder of the longer run, with what it goes on from. `plan` is that of `job`, and has
// more steps than the run. Sets the job's folder and name; `wanted_dir` may be empty.
Result<RunFolder> ExtendRun(const RunFolder& from, const std::string& wanted_dir,
                            const JobPlan& plan, Job* job);

}  // namespace pando
