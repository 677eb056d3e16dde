// The probe by which a worker proves its kind (P40): the hash of one micro-batch's gradient.
#pragma once

#include <cstdint>

#include "common/status.h"
#include "data/dataset.h"
#include "models/network.h"
#include "plan/job_plan.h"

namespace pando {

// Of the gradient of micro-batch 0 of step 0 at version 0, cut to kProbeSamplesMax samples.
Result<uint64_t> ProbeHash(const JobPlan& plan, const Model& model, const DataSet& data,
                           Device device = {});

}  // namespace pando
