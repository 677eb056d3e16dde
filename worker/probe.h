// The probe by which a worker proves its kind (P40): the hash of one micro-batch's gradient.
#pragma once

#include <cstdint>
#include <string>

#include "common/job_plan.h"
#include "common/status.h"
#include "models/network.h"
#include "worker/dataset.h"

namespace pando {

// Of the gradient of micro-batch 0 of step 0 at version 0, cut to kProbeSamplesMax samples.
Result<uint64_t> ProbeHash(const JobPlan& plan, const Model& model, const DataSet& data,
                           Device device = {});

}  // namespace pando
