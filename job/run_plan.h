// RunPlan: what a job comes to on its data: how many steps, tensors, shards and bytes. `pando
// train` makes it before it starts anything, so that bad input is one clear line, and prints it for
// --dry-run.
#pragma once

#include <string>

#include "common/status.h"
#include "models/network.h"
#include "plan/job.h"
#include "plan/step_plan.h"

namespace pando {

struct RunPlan {
  Model model;
  StepPlan steps;
  uint64_t train_samples = 0;
  uint64_t test_samples = 0;
};

// Opens the data set and builds the model; they and the micro-batches fit one another.
Result<RunPlan> MakeRunPlan(const Job& job);
// For people; every line starts with '#', so that job and plan together are still a job file.
std::string RunPlanText(const Job& job, const RunPlan& plan);

// How to cut the job's data into steps.
StepPlan MakeStepPlan(const Job& job, uint64_t train_sample_count);

}  // namespace pando
