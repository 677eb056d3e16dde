// Passes over a few samples that a worker computes before it trains: the probe that proves its kind
// (P40), and those in which a GPU measures its engines (P39). Called by the worker process and, for
// the engines, by the serial run.
#pragma once

#include <cstdint>
#include <functional>

#include "common/status.h"
#include "data/dataset.h"
#include "kernels/device.h"
#include "models/network.h"
#include "plan/job_plan.h"

namespace pando {

// The hash of the gradient of micro-batch 0 of step 0 at version 0, cut to kProbeSamplesMax
// samples.
Result<uint64_t> ProbeHash(const JobPlan& plan, const Model& model, const DataSet& data,
                           Device device = {});

// Measures the engines of every convolution of the job, with its true shapes: of all sizes of
// micro-batches, of evaluation, and of the probe. Takes seconds to minutes. kInterrupted: asked
// between layers, `is_interrupted` was true.
Result<EngineChoice> MeasureEngines(const JobPlan& plan, const Model& model, const DataSet& data,
                                    OpenedGpu& gpu, const std::function<bool()>& is_interrupted);

}  // namespace pando
