// The probe proves a worker's kind (P40) by a pass over a few samples, before the worker trains.
// Called by the worker process.
#pragma once

#include <cstdint>

#include "common/result.h"
#include "data/dataset.h"
#include "kernels/device.h"
#include "models/model.h"
#include "plan/job_plan.h"

namespace pando {

// The hash of the gradient of micro-batch 0 of step 0 at version 0, cut to kProbeSamplesMax
// samples.
Result<uint64_t> ProbeHash(const JobPlan& plan, const Model& model, const DataSet& data,
                           Device device = {});

}  // namespace pando
