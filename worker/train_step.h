// TrainStep computes one micro-batch: samples in, gradients out, shard by shard. Start reading
// Pando here: everything that a worker does around the network is named in Run. Called by the
// trainer's threads, one TrainStep each. On a GPU it launches the whole micro-batch and hands over
// what has arrived meanwhile.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/float_buffer.h"
#include "common/ids.h"
#include "common/job_plan.h"
#include "common/status.h"
#include "models/network.h"
#include "worker/batch_source.h"
#include "worker/error_feedback.h"
#include "worker/evaluate_chunk.h"
#include "worker/gpu_traffic.h"
#include "worker/parameter_store.h"
#include "worker/recorded_pass.h"
#include "worker/step_timeline.h"
#include "worker/tree_sum.h"

namespace pando {

// Which shards a layer needs and which it makes final. Backward runs from the last tensor to the
// first, so after a layer everything from the layer's first float on is final.
struct LayerShards {
  ShardPlan::Run needed;  // by forward: they hold the layer's tensors; empty where there are none
  ShardPlan::Run ready;   // after backward: they begin in the layer, or in it and later ones
};
std::vector<LayerShards> PlanLayerShards(const JobPlan& plan, const Network& network);
// The layers that backward goes through, from `last` down to `first`, before it hands shards over.
struct LayerRun {
  uint32_t first = 0;
  uint32_t last = 0;
};
std::vector<LayerRun> PlanBackwardParts(const std::vector<LayerShards>& layers);
// What a pass over the layers reads at one of its stops: the layer at work, and the next one that
// has tensors, which is fetched meanwhile.
struct LayerReads {
  ShardPlan::Run now;
  ShardPlan::Run next;
};
// By stop: forward layer by layer, then backward.
std::vector<LayerReads> PlanTrainingReads(const JobPlan& plan, const Network& network);
std::vector<LayerReads> PlanEvaluationReads(const JobPlan& plan, const Network& network);
// The shards that hold the metric tensor alone: final as soon as the batch is scored.
ShardPlan::Run MetricShards(const JobPlan& plan);

// Threads: one at a time. Uses its context's parts with other threads; they outlive it.
class TrainStep {
 public:
  struct Context {
    const JobPlan& plan;
    BatchSource& batches;
    ParameterStore& parameters;
    BufferPool& gradients;       // flat vectors of the device's memory
    BufferPool& host_gradients;  // pinned ones, for a GPU alone
    BufferPool& encoded;         // vectors of all encoded shards (plan.pushes)
    ErrorFeedback& feedback;
    StepTimeline& timeline;  // of the calling thread
  };
  TrainStep(const Model& model, SampleCounts samples, Device device, const Context& context);

  struct MicroBatchOfStep {
    Step step;
    MicroBatch micro_batch;
  };
  struct Work {
    Step step;
    MicroBatch micro_batch;
    TreeSum* sum = nullptr;    // none: computed for its hash alone (P41)
    uint64_t* hash = nullptr;  // set to the gradient's, never 0, where it is wanted
    // Called with each sum that this micro-batch completes, as it travels.
    std::function<void(TreeNode node, ShardId shard, Blob sum)> emit;
    std::function<void(const std::vector<BadPicture>&)> replaced;  // told before any gradient
    std::function<bool()> interrupted;  // asked while the forward waits for parameters
    ParameterStore::Hold::Fetch fetch;  // called with layer residency
    // Asked between layers: whether nobody wants the work any more. `is_partly_out`: some shards
    // have been added to the sum, and may count.
    std::function<bool(bool is_partly_out)> is_abandoned;
    // What will most likely be asked for after it: its samples come to a GPU meanwhile. None if
    // nobody knows.
    std::function<std::optional<MicroBatchOfStep>()> next;
  };
  // kInterrupted: the wait was called off and nothing has been added to the sum, so the work may be
  // run again; or it was abandoned. Other failures name the step, the micro-batch and what to try.
  Status Run(const Work& work);
  // What the last Run that succeeded took, waits for parameters aside.
  std::chrono::nanoseconds computing_time() const { return computing_time_; }

  // Between runs. `host`: a flat vector, which `serial` tells from others; whole, or filled by
  // `await`, which is called before a layer that reads the shards of `reads.now`, and whose failure
  // ends it.
  struct EvaluationParameters {
    uint64_t serial = 0;
    const float* host = nullptr;
    std::function<Status(const LayerReads& reads)> await;
  };
  Result<ChunkScore> Evaluate(const Batch& batch, const EvaluationParameters& parameters);

 private:
  using Hold = ParameterStore::Hold;
  Status Compute(const Work& work, Hold& parameters, const std::shared_ptr<const Batch>& batch);
  void SetBatch(const Work& work, const std::shared_ptr<const Batch>& batch, float loss_scale);
  void BringBatch(Step step, MicroBatch micro_batch);
  Status Forward(const Work& work, Hold& parameters, FloatBuffer* recorded_into);
  size_t MetricsAt() const;  // where the metric tensor lies in a flat vector
  Status Backward(const Work& work, Hold& parameters, const SharedBuffer& gradients);
  Status BackwardPart(const Work& work, LayerRun part, Hold& parameters, FloatBuffer& gradients,
                      const std::function<bool()>& is_abandoned);
  Status Await(const Work& work, Hold& parameters, size_t stop,
               const std::function<bool()>& interrupted);
  Result<float> LossScaleFor(const Work& work, Hold& parameters);
  const float* ValuesOf(const Hold& parameters) const;
  Status TakeScore(const Work& work, const Batch& batch);
  Status CheckLoss(const Work& work, const BatchScore& score) const;
  void HandOver(const Work& work, ShardPlan::Run shards, const SharedBuffer& gradients);
  void Emit(const Work& work, TreeNode node, ShardId shard, Blob sum);
  void Hash(const Work& work, ShardPlan::Run shards, const SharedBuffer& gradients);

  const Context context_;
  const Device device_;
  Network network_;
  std::optional<GpuTraffic> traffic_;         // none on the CPU: host and device share their memory
  std::optional<PassRecordings> recordings_;  // of small networks on a GPU
  const std::vector<LayerShards> layer_shards_;  // by layer
  const std::vector<LayerRun> backward_parts_;
  const std::vector<LayerReads> training_reads_;    // by stop
  const std::vector<LayerReads> evaluation_reads_;  // by layer
  const ShardPlan::Run metric_shards_;
  std::vector<uint64_t> shard_hashes_;  // of the gradient being made
  SharedBuffer encoded_;                // where this pass's gradients are encoded
  std::chrono::nanoseconds waited_{0};
  std::chrono::nanoseconds computing_time_{0};
};

}  // namespace pando
