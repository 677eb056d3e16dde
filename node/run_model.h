// The model of a run, and its plan, from what the scheduler said in its welcome. Apart from
// node_join: a worker within a program (embed/) has no models.
#pragma once

#include "common/status.h"
#include "models/network.h"
#include "node/node_join.h"
#include "plan/job_plan.h"

namespace pando {

// The model that the scheduler's facts describe.
Result<Model> CreateModel(const Membership& membership);
// The plan of such a model, or of one that a program declared.
Result<JobPlan> MakeJobPlan(const Membership& membership);

}  // namespace pando
