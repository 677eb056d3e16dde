#include "models/model.h"

#include <fmt/core.h>

#include <utility>

#include "models/zoo.h"

namespace pando {
namespace {

// Returns the shape that the first layer gets.
Result<SampleShape> EntranceShape(const std::string& model, const Architecture& architecture,
                                  SampleShape data) {
  const uint32_t wanted = architecture.channels;
  if (wanted == 0 || data.channels == wanted) return data;
  if (data.channels == 1) return SampleShape{data.height, data.width, wanted};
  return InvalidArgument(fmt::format(
      "model {}: takes pictures of {} channels, or of 1, which is repeated, but the data "
      "have {} (height x width x channels); choose another model or other data",
      model, wanted, ShapeText(data)));
}

}  // namespace

Result<Graph> BuildModelGraph(const Job& job, SampleShape data, uint32_t class_count) {
  PANDO_ASSIGN_OR_RETURN(Architecture architecture,
                         IsNetworkFile(job.model)
                             ? ParseNetworkFile(job.network, job.model, class_count)
                             : ZooArchitecture(job, class_count));
  PANDO_ASSIGN_OR_RETURN(SampleShape entrance, EntranceShape(job.model, architecture, data));
  return Graph::Build(job.model, architecture.layers, entrance, class_count);
}

Result<Model> Model::Create(const Job& job, SampleShape data, uint32_t class_count) {
  PANDO_ASSIGN_OR_RETURN(Graph graph, BuildModelGraph(job, data, class_count));
  return Model(job, std::make_shared<const Graph>(std::move(graph)));
}

Model::Model(const Job& job, std::shared_ptr<const Graph> graph)
    : graph_(std::move(graph)),
      label_smoothing_(static_cast<float>(job.label_smoothing)),
      is_checkpointed_(job.activation_checkpointing) {}

}  // namespace pando
