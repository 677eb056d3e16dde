// Model and Network: what a worker computes with. A Model is the description (layers, tensors). A
// Network is one computing thread's working copy with its activation memory, planned once.
//
// Parameters and gradients are flat vectors in the model's TensorLayout, in the device's memory.
// The trainer walks the layers, forward 0, 1, ... and backward in reverse, and may work in between
// (wait for a layer's parameters, send a layer's gradient). On a GPU each call returns when its
// work is launched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/batch.h"
#include "common/ids.h"
#include "common/status.h"
#include "kernels/device.h"
#include "models/memory_plan.h"
#include "plan/job.h"
#include "plan/tensor_layout.h"

namespace pando {

class Graph;               // models/graph.h
struct CrossEntropyScore;  // kernels/ops.h, and so the next
struct DeviceBatch;

class Model {
 public:
  // The largest model: 4,096 shards of 4 MiB, far fewer than a message's limit.
  static constexpr uint64_t kBytesMax = uint64_t{16} << 30;

  // `data`: the shape of the data set's samples. Pictures of one channel are repeated for a model
  // of three. kInvalidArgument if the model is unknown (names the nearest), does not fit the
  // samples' shape (names the layer and both shapes) or is larger than kBytesMax.
  static Result<Model> Create(const Job& job, SampleShape data, uint32_t class_count);

  // Every tensor, in model order, the metric tensor last.
  const TensorLayout& layout() const;
  const Graph& graph() const { return *graph_; }
  float label_smoothing() const { return label_smoothing_; }
  bool is_checkpointed() const { return is_checkpointed_; }
  static std::vector<std::string> Names();

 private:
  Model(const Job& job, std::shared_ptr<const Graph> graph);
  std::shared_ptr<const Graph> graph_;
  float label_smoothing_;
  bool is_checkpointed_;
};

enum class Mode : uint8_t {
  kTrain,
  kTrainWithoutDropout,  // to compare gradients with PyTorch's
  kEvaluate,             // no dropout, running statistics, no backward
};

// Identifies a micro-batch: dropout's random numbers are a function of it (P37).
struct MicroBatchName {
  uint64_t seed = 0;
  Step step;
  MicroBatch micro_batch;
  // With half floats, the factor of the gradients between layers, so that they do not vanish.
  // Gradients of parameters do not have it.
  float loss_scale = 1;
};

struct BatchScore {  // sums over the batch's samples
  double loss_sum = 0;
  uint32_t correct_count = 0;
  uint32_t top5_count = 0;
};

// The largest number of samples of a batch.
struct SampleCounts {
  uint32_t training = 1;
  uint32_t evaluation = 1;
};

// The memory of a network besides parameters and gradients: one block, which both passes use.
struct NetworkMemory {
  MemoryPlan training;
  uint64_t evaluation_bytes = 0;
  uint64_t allocated_bytes() const { return std::max(training.allocated_bytes, evaluation_bytes); }
};

// Threads: one at a time. Every sum has a fixed order (P35).
class Network {
 public:
  Network(const Model& model, SampleCounts samples, Device device = {});
  Network(const Model& model, uint32_t sample_count_max, Device device = {})
      : Network(model, SampleCounts{sample_count_max, sample_count_max}, device) {}
  ~Network();
  Network(Network&&) noexcept;

  static NetworkMemory PlanMemory(const Model& model, SampleCounts samples, Device device = {});

  uint32_t layer_count() const;
  // Names of the graph's layers that are computed together as this one: "conv1 pool1 relu1".
  const std::string& LayerNames(uint32_t layer) const;
  // The tensors whose gradients a layer makes in backward, statistics included (the tree averages
  // the batch's statistics): a contiguous run [first, last) of layout indices, empty for layers
  // without tensors. Layers in order cover all tensors except the metric tensor.
  struct TensorRun {
    size_t first = 0;
    size_t last = 0;
  };
  TensorRun LayerTensors(uint32_t layer) const;
  // The part of LayerTensors that a training forward reads: all except statistics, which are last.
  TensorRun TrainingTensors(uint32_t layer) const;
  // The parameters that Backward reads.
  TensorRun BackwardTensors(uint32_t layer) const;

  // Copies the batch for one forward and backward, which later overwrite the copy.
  // `there`: the same batch in the device's memory, if it is already there; null: it is copied.
  // REQUIRES: batch.sample_count() in [1, the network's maximum]; the model was made for samples of
  // its shape.
  void SetBatch(const Batch& batch, MicroBatchName name, Mode mode,
                const DeviceBatch* there = nullptr);
  // Call it for the layers in order, once each. `parameters`: the flat vector; reads only this
  // layer's tensors.
  void Forward(uint32_t layer, const float* parameters);
  // After the last layer's forward: softmax cross-entropy summed over samples, never a mean (P2).
  // Training uses the job's label smoothing. Waits for a GPU.
  BatchScore Score() const;
  // The same sums in the device's memory, for callers that do not wait here. Valid until the
  // forward after the next SetBatch.
  const CrossEntropyScore* device_score() const;
  // Writes the sum of the losses and the number of correct samples to the device's memory, as
  // floats.
  void WriteScore(float* loss_and_correct) const;
  // For each sample the class with the greatest output, the lowest of equal ones.
  // REQUIRES: the last layer's forward was the last call, except for Score.
  std::vector<uint32_t> Predictions() const;
  // Call it for the layers in reverse, once each, after a whole training forward. Writes (does not
  // add) this layer's tensors in `gradients`: sums over samples. After it returns, no backward
  // reads this layer's parameters again. With activation checkpointing it computes earlier layers
  // again and reads their parameters: those of BackwardTensors.
  void Backward(uint32_t layer, const float* parameters, float* gradients);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
