// EvaluateChunk scores a few test samples with given parameters. Called by the trainer's threads.
#pragma once

#include <cstdint>

#include "common/job_plan.h"
#include "common/status.h"
#include "models/network.h"
#include "worker/dataset.h"

namespace pando {

// Evaluation goes in chunks of this many test samples whatever the micro-batch, the thread count or
// the number of workers, so that none of them changes a bit of the loss.
inline constexpr uint64_t kEvaluationChunkSamples = 64;
static_assert(kEvaluationSliceSamples % kEvaluationChunkSamples == 0);

struct TestSamples {  // [first, last), at most kEvaluationChunkSamples, at least one
  uint64_t first = 0;
  uint64_t last = 0;
};
// `parameters`: a whole flat vector.
Result<BatchScore> EvaluateChunk(Network& network, const DataSet& data, TestSamples samples,
                                 const float* parameters);

}  // namespace pando
