// Model and Network: what a worker computes with. A Model is the description (layers, tensors); a
// Network is one computing thread's working copy with its activation memory, planned once.
//
// Parameters and gradients are flat vectors in the model's TensorLayout, in the device's memory.
// The trainer walks the layers: forward 0, 1, ... and backward in reverse, and may do other things
// in between (wait for a layer's parameters, send a layer's gradient). On a GPU each call returns
// when its work is launched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/batch.h"
#include "common/ids.h"
#include "common/job.h"
#include "common/status.h"
#include "common/tensor_layout.h"
#include "kernels/device.h"
#include "models/memory_plan.h"

namespace pando {

class Graph;               // models/graph.h
struct CrossEntropyScore;  // kernels/ops.h, and so the next
struct DeviceBatch;

class Model {
 public:
  // The largest model: 4,096 shards of 4 MiB, far fewer than a message may name.
  static constexpr uint64_t kBytesMax = uint64_t{16} << 30;

  // `data`: the shape of the data set's samples; pictures of one channel are repeated for a model
  // of three. kInvalidArgument when the model is unknown (names the nearest), does not fit the
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

// Which micro-batch this is: dropout's randomness is a function of it (P37).
struct MicroBatchName {
  uint64_t seed = 0;
  Step step;
  MicroBatch micro_batch;
  // With half floats the gradients between layers are so many times larger, lest they vanish; those
  // of parameters are not.
  float loss_scale = 1;
};

struct BatchScore {  // sums over the batch's samples
  double loss_sum = 0;
  uint32_t correct_count = 0;
  uint32_t top5_count = 0;
};

// The most samples of a batch.
struct SampleCounts {
  uint32_t training = 1;
  uint32_t evaluation = 1;
};

// What a network holds beside parameters and gradients: one piece of memory, in which both passes
// have their places.
struct NetworkMemory {
  MemoryPlan training;
  uint64_t evaluation_bytes = 0;
  uint64_t allocated_bytes() const { return std::max(training.allocated_bytes, evaluation_bytes); }
};

// Threads: one at a time. The sum of every reduction has a fixed order (P35).
class Network {
 public:
  Network(const Model& model, SampleCounts samples, Device device = {});
  Network(const Model& model, uint32_t sample_count_max, Device device = {})
      : Network(model, SampleCounts{sample_count_max, sample_count_max}, device) {}
  ~Network();
  Network(Network&&) noexcept;

  static NetworkMemory PlanMemory(const Model& model, SampleCounts samples, Device device = {});

  uint32_t layer_count() const;
  // Names of the graph's layers that are computed in one go as this one: "conv1 pool1 relu1".
  const std::string& LayerNames(uint32_t layer) const;
  // The tensors that a layer makes gradients of in backward, those of statistics included (what the
  // tree averages of a statistic is the batch's own): a contiguous run [first, last) of layout
  // indices, empty for layers without tensors. Layers in order cover all tensors but the metric
  // tensor.
  struct TensorRun {
    size_t first = 0;
    size_t last = 0;
  };
  TensorRun LayerTensors(uint32_t layer) const;
  // Of LayerTensors, those that a training forward reads: all but statistics, which are last.
  TensorRun TrainingTensors(uint32_t layer) const;
  // What Backward reads of the parameters.
  TensorRun BackwardTensors(uint32_t layer) const;

  // Copies the batch, for one forward and backward: they end in memory that others use by then.
  // `there`: the same in the device's memory, where somebody has brought it; null: it is brought.
  // REQUIRES: batch.sample_count() in [1, what the network was made for]; the
  // model was made for samples of its shape.
  void SetBatch(const Batch& batch, MicroBatchName name, Mode mode,
                const DeviceBatch* there = nullptr);
  // Layers in order, once. `parameters`: the flat vector; only this layer's tensors are read.
  void Forward(uint32_t layer, const float* parameters);
  // After the last layer's forward: softmax cross-entropy summed over samples (never a mean: P2);
  // in training with the job's label smoothing. Waits for a GPU.
  BatchScore Score() const;
  // The same sums where the device has made them, for who does not wait here: until the next
  // SetBatch's forward.
  const CrossEntropyScore* device_score() const;
  // Writes the sum of the losses and the count of the correct to the device's memory, as floats.
  void WriteScore(float* loss_and_correct) const;
  // Of each sample the class with the greatest output, the lowest of equal ones.
  // REQUIRES: the last layer's forward was the last call but for Score.
  std::vector<uint32_t> Predictions() const;
  // Layers in reverse, once, after all of a training forward. Writes (not adds) this layer's
  // tensors in `gradients`: sums over samples. When it returns, neither this nor an earlier
  // backward reads this layer's parameters again. With activation checkpointing it computes layers
  // before this one again, and reads their parameters: those of BackwardTensors.
  void Backward(uint32_t layer, const float* parameters, float* gradients);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
