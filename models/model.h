// Model describes a network: its layers and tensors. It is made from a job and the shape of its
// data.
#pragma once

#include <memory>

#include "common/result.h"
#include "models/graph.h"
#include "plan/job.h"
#include "plan/tensor_layout.h"

namespace pando {

// Builds the graph of a job's model on the job's data. `pando model` shows it without computing.
// `data` is the shape of the data set's samples. The graph's input has its height and width. If the
// model is for pictures of three channels and the data have one, the input has three (ImportBatch
// repeats the channel).
// kInvalidArgument: the model is unknown (names the nearest), its file is invalid (names the line),
// or it does not fit the data (names the layer and both shapes).
Result<Graph> BuildModelGraph(const Job& job, SampleShape data, uint32_t class_count);

class Model {
 public:
  // The largest model: 4,096 shards of 4 MiB, far fewer than a message's limit.
  static constexpr uint64_t kBytesMax = uint64_t{16} << 30;

  // The errors are those of BuildModelGraph.
  static Result<Model> Create(const Job& job, SampleShape data, uint32_t class_count);

  // Every tensor, in model order, the metric tensor last.
  const TensorLayout& layout() const { return graph_->layout(); }
  const Graph& graph() const { return *graph_; }
  float label_smoothing() const { return label_smoothing_; }
  bool is_checkpointed() const { return is_checkpointed_; }

 private:
  Model(const Job& job, std::shared_ptr<const Graph> graph);
  std::shared_ptr<const Graph> graph_;
  float label_smoothing_;
  bool is_checkpointed_;
};

}  // namespace pando
