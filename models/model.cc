#include <fmt/format.h>

#include "models/graph.h"
#include "models/model_graph.h"
#include "models/network.h"
#include "models/stage.h"
#include "models/zoo.h"

namespace pando {
namespace {

Status CheckSize(const std::string& model, const TensorLayout& layout) {
  const uint64_t bytes = layout.float_count() * sizeof(float);
  if (bytes <= Model::kBytesMax) return Status();
  return InvalidArgument(
      fmt::format("model {}: {} parameters take {} bytes, and a model has {} at most; use fewer or "
                  "narrower layers",
                  model, layout.parameter_count(), bytes, Model::kBytesMax));
}

}  // namespace

Result<Model> Model::Create(const Job& job, SampleShape data, uint32_t class_count) {
  Result<Graph> graph = BuildModelGraph(job, data, class_count);
  if (!graph.ok()) return graph.status();
  if (Status s = CheckSize(job.model, graph->layout()); !s.ok()) return s;
  if (Status s = CheckComputable(job.model, *graph); !s.ok()) return s;
  return Model(std::make_shared<const Graph>(*std::move(graph)));
}

const TensorLayout& Model::layout() const { return graph_->layout(); }

std::vector<std::string> Model::Names() { return ZooNames(); }

}  // namespace pando
