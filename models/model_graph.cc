#include "models/model_graph.h"

#include <fmt/format.h>

#include "models/network_file.h"
#include "models/zoo.h"

namespace pando {
namespace {

Result<Architecture> FindArchitecture(const Job& job, uint32_t class_count) {
  if (!IsNetworkFile(job.model)) return ZooArchitecture(job, class_count);
  return ParseNetworkFile(job.network, job.model, class_count);
}

// The shape that the first layer gets.
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
  Result<Architecture> architecture = FindArchitecture(job, class_count);
  if (!architecture.ok()) return architecture.status();
  Result<SampleShape> entrance = EntranceShape(job.model, *architecture, data);
  if (!entrance.ok()) return entrance.status();
  return Graph::Build(job.model, architecture->layers, *entrance, class_count);
}

}  // namespace pando
