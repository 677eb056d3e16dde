// EvaluateChunk scores a few test samples with given parameters. Called by the trainer's threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/batch.h"
#include "common/job_plan.h"
#include "common/status.h"
#include "models/network.h"
#include "proto/message_limits.h"
#include "proto/messages.h"

namespace pando {

// Evaluation goes in chunks of this many test samples whatever the micro-batch, the thread count or
// the number of workers, so that none of them changes a bit of the loss.
inline constexpr uint64_t kEvaluationChunkSamples = 64;
static_assert(kEvaluationSliceSamples % kEvaluationChunkSamples == 0);
static_assert(kEvaluationSliceSamples <= kConfusionCountsMax);

struct ChunkScore {
  BatchScore sums;
  std::vector<ConfusionCount> confusion;  // one per sample, in their order
};
// `parameters`: a flat vector, whole, or filled by `await`, which is called before each layer and
// whose failure ends it.  REQUIRES: 1 to kEvaluationChunkSamples samples.
Result<ChunkScore> EvaluateChunk(Network& network, const Batch& batch, const float* parameters,
                                 const std::function<Status(uint32_t layer)>& await = {});

// The result of `request`, from the scores of its chunks in the order of the samples. More than one
// slice counts as so many: the loss is the sum of the slices' sums.
EvaluationResult ResultOf(const Evaluate& request, const std::vector<ChunkScore>& chunks);

}  // namespace pando
