// Test samples are scored in chunks (EvaluateChunk). Each computing thread has an EvaluationPass.
// Called by the trainer's threads and the serial trainer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/batch.h"
#include "common/result.h"
#include "kernels/copy_queue.h"
#include "models/network.h"
#include "plan/job_plan.h"
#include "proto/message_limits.h"
#include "proto/messages.h"
#include "train/gpu/input_copies.h"
#include "train/pass_parameters.h"

namespace pando {

// The samples of a chunk. It does not depend on the micro-batch, the thread count or the number of
// workers, so that none of them changes a bit of the loss.
inline constexpr uint64_t kEvaluationChunkSamples = 64;
static_assert(kEvaluationSliceSamples % kEvaluationChunkSamples == 0);
static_assert(kEvaluationSliceSamples <= kConfusionCountsMax);

struct ChunkScore {
  BatchScore sums;
  std::vector<ConfusionCount> confusion;  // one per sample, in their order
};
// `parameters`: a flat vector. If it is not whole, `await` fills it before each layer; a failure of
// `await` ends the evaluation.  REQUIRES: 1 to kEvaluationChunkSamples samples.
Result<ChunkScore> EvaluateChunk(Network& network, const Batch& batch, const float* parameters,
                                 const std::function<Status(uint32_t layer)>& await = {});

// The result of `request`, from the scores of its chunks in the order of the samples. If it spans
// several slices, the loss is the sum of the slices' sums.
EvaluationResult CombineScores(const Evaluate& request, const std::vector<ChunkScore>& chunks);

// Scores chunks of test samples on a computing thread's network.
// Threads: as Device. Owns: a GPU's copy of the parameters that are evaluated.
class EvaluationPass {
 public:
  // Both outlive the pass. During Run only this pass uses the network.
  EvaluationPass(const JobPlan& plan, Network& network, Device device);

  struct Parameters {
    uint64_t serial = 0;          // tells one flat vector from another
    const float* host = nullptr;  // the flat vector, whole or as far as `await` has allowed
    // If set, called before a layer that reads the shards of `reads.now`; a failure ends the pass.
    std::function<Status(const LayerReads& reads)> await;
  };
  // REQUIRES: 1 to kEvaluationChunkSamples samples.
  Result<ChunkScore> Run(const Batch& batch, const Parameters& parameters);

 private:
  struct GpuCopy {
    GpuCopy(Device device, const ShardPlan& shards)
        : uploads(device), parameters(device, shards, uploads) {}
    CopyQueue uploads;
    ParameterCopy parameters;
  };
  Result<ChunkScore> RunOnGpu(const Batch& batch, const Parameters& parameters);

  const JobPlan& plan_;
  Network& network_;
  const std::vector<LayerReads> reads_;  // by layer
  const std::unique_ptr<GpuCopy> gpu_;   // null on the CPU
};

}  // namespace pando
