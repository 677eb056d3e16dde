// Makes the model of a run, and its plan, from the scheduler's welcome. It is separate from
// node_join because a worker in a program (embed/) has no models.
#pragma once

#include "common/result.h"
#include "models/model.h"
#include "node/node_join.h"
#include "plan/job_plan.h"

namespace pando {

// Creates the model that the scheduler's facts describe.
Result<Model> CreateModel(const Membership& membership);
// Makes the plan of such a model, or of one that a program declared.
Result<JobPlan> MakeJobPlan(const Membership& membership);

}  // namespace pando
