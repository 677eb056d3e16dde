#include "models/graph.h"
#include "models/model_graph.h"
#include "models/network.h"
#include "models/zoo.h"

namespace pando {

Result<Model> Model::Create(const Job& job, SampleShape data, uint32_t class_count) {
  Result<Graph> graph = BuildModelGraph(job, data, class_count);
  if (!graph.ok()) return graph.status();
  return Model(job, std::make_shared<const Graph>(*std::move(graph)));
}

Model::Model(const Job& job, std::shared_ptr<const Graph> graph)
    : graph_(std::move(graph)),
      label_smoothing_(static_cast<float>(job.label_smoothing)),
      is_checkpointed_(job.activation_checkpointing) {}

const TensorLayout& Model::layout() const { return graph_->layout(); }

std::vector<std::string> Model::Names() { return ZooNames(); }

}  // namespace pando
