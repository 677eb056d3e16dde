// The models that come with the program, as lists of layers.
#pragma once

#include <string>
#include <vector>

#include "common/job.h"
#include "common/status.h"
#include "models/graph.h"

namespace pando {

std::vector<std::string> ZooNames();

// The layers of job.model, ending in class_count outputs.
// kInvalidArgument when there is no such model (names the nearest), or its options cannot work.
Result<std::vector<LayerSpec>> ZooLayers(const Job& job, uint32_t class_count);

}  // namespace pando
