// MicroBatchPass computes one micro-batch: samples in, gradients out, shard by shard. Start reading
// Pando here: Run is what a worker computes between receiving parameters and sending gradients.
// Each of the trainer's threads has one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/buffer_pool.h"
#include "common/ids.h"
#include "common/result.h"
#include "data/batch_source.h"
#include "models/network.h"
#include "plan/job_plan.h"
#include "train/compute_port.h"
#include "train/error_feedback.h"
#include "train/local_round.h"
#include "train/parameter_store.h"
#include "train/pass_launcher.h"
#include "train/pass_parameters.h"
#include "train/step_timeline.h"
#include "train/tree_sum.h"

namespace pando {

// This text is in the failure of a run that would fail again if it were resumed.
inline constexpr const char* kDivergedText = "training has diverged";

// Threads: one at a time. Several passes on other threads share the parts of the context.
class MicroBatchPass {
 public:
  struct Context {  // all outlive the pass
    const JobPlan& plan;
    BatchSource& batches;
    ParameterStore& parameters;
    BufferPool& gradients;       // flat vectors in the device's memory
    BufferPool& host_gradients;  // pinned ones; used with a GPU
    BufferPool& encoded;         // vectors of all encoded shards (plan.pushes); pinned with a GPU
    ErrorFeedback& feedback;
    StepTimeline& timeline;  // of the calling thread
    bool sums_stay;          // a GPU's sums stay in its memory (TrainerParts)
    // Returns the batch that is most likely wanted next, if it has been read. Is called late.
    NextBatch next_batch = [] { return nullptr; };
  };
  // REQUIRES: `network` outlives the pass; during Run only this pass uses it.
  MicroBatchPass(Network& network, Device device, const Context& context);

  struct Work {
    Step step;
    MicroBatch micro_batch;
    TreeSum* sum = nullptr;    // null: computed for its hash alone (P41)
    uint64_t* hash = nullptr;  // if not null, set to the gradient's hash, which is never 0
    ComputeTicket ticket;
    const ComputeSink& sink;  // takes GradientReady for each sum that this micro-batch completes
    PassControl& control;
  };
  // Computes the micro-batch. Returns kInterrupted if the wait for parameters was called off and
  // nothing has been added to the sum, so that the work may be run again, or if the work was
  // abandoned. Other failures name the step, the micro-batch and what to try.
  Status Run(const Work& work);
  // How long the last successful Run took, without waits for parameters.
  std::chrono::nanoseconds computing_time() const { return computing_time_; }

 private:
  Status Compute(PassParameters& parameters);
  Status ComputeRound(PassParameters& parameters);
  Result<float> LossScaleFor(PassParameters& parameters);
  size_t MetricsAt() const;  // where the metric tensor lies in a flat vector
  Status CheckScore(const std::optional<BatchScore>& score) const;
  void AddToSum(ShardPlan::Run shards, const SharedBuffer& gradients);
  void Hash(ShardPlan::Run shards, FloatBuffer& gradients);
  Status EmitResults(PassLauncher::Wait wait, const PassParameters& parameters);
  void Emit(CompleteSum sum);
  Blob Encode(ShardId shard, Blob sum);

  const Context context_;
  const Device device_;
  const std::vector<LayerReads> reads_;    // by turn
  const std::vector<BackwardPart> parts_;  // in the order of backward
  const ShardPlan::Run metric_shards_;
  const std::unique_ptr<PassLauncher> launcher_;
  const std::unique_ptr<LocalRound> round_;  // null without local steps
  std::vector<uint64_t> shard_hashes_;       // of the current gradient
  // The rest belongs to the current Run.
  const Work* work_ = nullptr;
  std::shared_ptr<const Batch> batch_;
  SharedBuffer encoded_;  // its sums are encoded here
  std::chrono::nanoseconds computing_time_{0};
};

}  // namespace pando
