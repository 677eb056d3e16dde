#include "models/graph.h"
#include "models/network.h"
#include "models/zoo.h"

namespace pando {

Result<Model> Model::Create(const Job& job, SampleShape input, uint32_t class_count) {
  Result<std::vector<LayerSpec>> layers = ZooLayers(job, class_count);
  if (!layers.ok()) return layers.status();
  Result<Graph> graph = Graph::Build(job.model, *layers, input, class_count);
  if (!graph.ok()) return graph.status();
  return Model(std::make_shared<const Graph>(*std::move(graph)));
}

const TensorLayout& Model::layout() const { return graph_->layout(); }

std::vector<std::string> Model::Names() { return ZooNames(); }

}  // namespace pando
