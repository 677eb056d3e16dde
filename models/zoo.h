// The models that come with the program, as lists of layers. Names, counts and initialisation of
// their tensors are torchvision's where it has the model (tests/golden/torchvision.txt).
#pragma once

#include <string>
#include <vector>

#include "common/job.h"
#include "common/status.h"
#include "models/graph.h"

namespace pando {

// A model before it has met its data.
struct Architecture {
  std::vector<LayerSpec> layers;
  uint32_t channels = 0;  // of its pictures; those of one-channel data are repeated. 0: any
};

struct ZooModel {
  const char* name;
  const char* description;
  // What it was made for; it takes others, and Graph::Build says so where it cannot.
  SampleShape input;
  uint32_t class_count;
};
const std::vector<ZooModel>& ZooModels();
std::vector<std::string> ZooNames();
// The model so named, or null.
const ZooModel* FindZooModel(const std::string& name);

// Of job.model, ending in class_count outputs.
// kInvalidArgument when there is no such model (names the nearest), or its options cannot work.
Result<Architecture> ZooArchitecture(const Job& job, uint32_t class_count);

}  // namespace pando
