// Model and Network: what a worker computes with. A Model is the description (layers, tensors); a
// Network is one computing thread's working copy with its activation memory, planned once.
//
// Parameters and gradients are flat vectors in the model's TensorLayout. The trainer walks the
// layers: forward 0, 1, ... and backward in reverse, and may do other things in between (wait for a
// layer's parameters, send a layer's gradient).
#pragma once

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

namespace pando {

class Graph;  // models/graph.h

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
  static std::vector<std::string> Names();

 private:
  explicit Model(std::shared_ptr<const Graph> graph) : graph_(std::move(graph)) {}
  std::shared_ptr<const Graph> graph_;
};

enum class Mode : uint8_t { kTrain, kEvaluate };  // kEvaluate: no dropout, running statistics

// Which micro-batch this is: dropout's randomness is a function of it (P37).
struct MicroBatchName {
  uint64_t seed = 0;
  Step step;
  MicroBatch micro_batch;
};

struct BatchScore {  // sums over the batch's samples
  double loss_sum = 0;
  uint32_t correct_count = 0;
};

// Threads: one at a time. The sum of every reduction has a fixed order (P35).
class Network {
 public:
  Network(const Model& model, uint32_t sample_count_max);
  ~Network();
  Network(Network&&) noexcept;

  uint32_t layer_count() const;
  // The tensors that a layer reads in forward and makes gradients of in backward: a contiguous run
  // [first, last) of layout indices, empty for layers without parameters. Layers in order cover all
  // tensors but the metric tensor.
  struct TensorRun {
    size_t first = 0;
    size_t last = 0;
  };
  TensorRun LayerTensors(uint32_t layer) const;

  // Copies the batch.  REQUIRES: batch.sample_count() in [1, sample_count_max]; the model was made
  // for samples of its shape.
  void SetBatch(const Batch& batch, MicroBatchName name, Mode mode);
  // Layers in order. `parameters`: the flat vector; only this layer's tensors are read.
  void Forward(uint32_t layer, const float* parameters);
  // After the last layer's forward: softmax cross-entropy summed over samples (never a mean: P2).
  BatchScore Score() const;
  // Layers in reverse, after all of forward. Writes (not adds) this layer's tensors in `gradients`:
  // sums over samples. When it returns, neither this nor an earlier backward reads this layer's
  // parameters again.
  void Backward(uint32_t layer, const float* parameters, float* gradients);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
