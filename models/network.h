// Network is one computing thread's working copy of a Model, with its activation memory, planned
// once.
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
#include "kernels/device_memory.h"
#include "models/model.h"
#include "models/network_plan.h"

namespace pando {

// Identifies a micro-batch: dropout's random numbers are a function of it (P37).
struct MicroBatchName {
  uint64_t seed = 0;
  Step step;
  MicroBatch micro_batch;
  // With half floats, the factor of the gradients between layers, so that they do not vanish.
  // Gradients of parameters do not have it.
  float loss_scale = 1;
};

using BatchScore = CrossEntropyScore;  // sums over the batch's samples

// The largest numbers of samples of a batch.
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

  static NetworkMemory PlanMemory(const Model& model, SampleCounts samples, Device device = {});

  uint32_t layer_count() const { return static_cast<uint32_t>(stages_.size()); }
  // The names of the graph's layers in this layer, "conv1 pool1 relu1": a layer of a network is a
  // Stage, one or more of the graph's layers, computed together.
  const std::string& LayerNames(uint32_t layer) const { return stages_[layer].layers; }
  // The tensors whose gradients a layer makes in backward, with statistics (the tree averages the
  // batch's statistics): a contiguous run [first, last) of layout indices, empty for layers without
  // tensors. Layers in order cover all tensors except the metric tensor.
  TensorRun LayerTensors(uint32_t layer) const { return stages_[layer].tensors; }
  // The part of LayerTensors that a training forward reads: all except statistics, which are last.
  TensorRun TrainingTensors(uint32_t layer) const { return stages_[layer].parameters; }
  // The parameters that Backward reads.
  TensorRun BackwardTensors(uint32_t layer) const;

  // Copies the batch for one forward and backward, which later overwrite the copy. `there` is the
  // same batch in the device's memory, if it is already there; null: it is copied. REQUIRES:
  // batch.sample_count() in [1, the network's maximum]; the model was made for samples of its
  // shape.
  void SetBatch(const Batch& batch, MicroBatchName name, Mode mode,
                const DeviceBatch* there = nullptr);
  // Call it for the layers in order, once each. `parameters` is the flat vector, of which it reads
  // only this layer's tensors.
  void Forward(uint32_t layer, const float* parameters);
  // After the last layer's forward: softmax cross-entropy summed over samples, never a mean (P2).
  // Training uses the job's label smoothing. Waits for a GPU.
  BatchScore Score() const;
  // Returns the same sums in the device's memory, for callers that do not wait here. Valid until
  // the forward after the next SetBatch.
  const CrossEntropyScore* device_score() const { return score_.data(); }
  // Writes the sum of the losses and the number of correct samples to the device's memory, as
  // floats.
  void WriteScore(float* loss_and_correct) const {
    ScoreToFloats(pass_.device, score_.data(), loss_and_correct);
  }
  // [samples, classes], before the softmax.
  // REQUIRES: the last layer's forward was the last call, except for Score and Predictions.
  std::vector<float> Outputs() const;
  // Returns each sample's class with the greatest output, the lowest of equal ones. REQUIRES: as
  // above.
  std::vector<uint32_t> Predictions() const;
  // Call it for the layers in reverse, once each, after a whole training forward. Writes (does not
  // add) this layer's tensors in `gradients`: sums over samples. After it returns, no backward
  // reads this layer's parameters again. With activation checkpointing it computes earlier layers
  // again and reads their parameters: those of BackwardTensors.
  void Backward(uint32_t layer, const float* parameters, float* gradients);

 private:
  // A device's memory for a number of T.
  template <class T>
  class DeviceArray {
   public:
    DeviceArray(Device device, size_t count) : memory_(device, count * sizeof(T)) {}
    T* data() const { return reinterpret_cast<T*>(memory_.data()); }

   private:
    DeviceMemory memory_;
  };

  bool has_loss_scale() const { return pass_.device.element == ElementType::kFloat16; }
  void ScoreBatch(const void* logits);
  void ForwardStage(size_t stage, const ForwardBuffers& buffers, const float* parameters);
  void AddGradients(size_t stage, const BackwardBuffers& buffers);

  // The plan of the current pass. Both plans share the memory.
  const NetworkPlan& plan() const {
    return pass_.mode == Mode::kEvaluate ? evaluation_ : training_;
  }
  std::byte* Bytes(size_t buffer) const;
  std::span<std::byte> Span(size_t buffer) const;

  SampleCounts samples_;
  SampleShape input_;
  float label_smoothing_;
  Pass pass_;
  std::vector<StagePlan> stages_;
  NetworkPlan evaluation_;
  NetworkPlan training_;
  DeviceMemory memory_;
  DeviceArray<int32_t> labels_;
  DeviceArray<PassNumbers> numbers_;
  DeviceArray<CrossEntropyScore> score_;
  DeviceMemory score_scratch_;
  // Stages whose forward is done; in backward, stages whose backward is not done. Any other order
  // would read memory that has been reused.
  size_t open_count_ = 0;
  enum class Phase : uint8_t { kNoBatch, kForward, kScored, kBackward } phase_ = Phase::kNoBatch;
};

}  // namespace pando
