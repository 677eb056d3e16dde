// Extends a run beyond its end, in another folder; the run's own folder stays as it is.
// run_commands.cc uses it for `pando resume --epochs` and `--steps`.
#pragma once

#include <string>

#include "common/result.h"
#include "plan/job_plan.h"
#include "run/run_folder.h"

namespace pando {

// Makes the folder of the longer run, whole or not at all, with the files from which it continues.
// Sets the job's folder and name; `wanted_dir` may be empty. Refuses a run that did not end with
// its newest snapshot, or whose evaluations would stop it at once. REQUIRES: `plan` is that of
// `job`, and has more steps than the run.
Result<RunFolder> ExtendRun(const RunFolder& from, const std::string& wanted_dir,
                            const JobPlan& plan, Job* job);

}  // namespace pando
