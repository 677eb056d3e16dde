// The models that come with the program, and those in users' files, as lists of layers. If
// torchvision has the model, names, counts and initialisation of its tensors are torchvision's
// (tests/golden/torchvision.txt).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "models/graph.h"
#include "plan/job.h"

namespace pando {

// A model without its data.
struct Architecture {
  std::vector<LayerSpec> layers;
  uint32_t channels = 0;  // of its pictures; one-channel data are repeated. 0: any
};

struct ZooModel {
  const char* name;
  const char* description;
  // The usual input. The model takes others, and Graph::Build reports those that do not fit.
  SampleShape input;
  uint32_t class_count;
  // Makes the layers for its name, which has the family's options. Null: the job also has options.
  std::vector<LayerSpec> (*layers)(const std::string& name, uint32_t class_count);
};
const std::vector<ZooModel>& ZooModels();
std::vector<std::string> ZooNames();
// Returns the model with this name, or null.
const ZooModel* FindZooModel(const std::string& name);

// Returns the layers of job.model, which end in class_count outputs. kInvalidArgument: there is no
// such model (names the nearest), or its options cannot work.
Result<Architecture> ZooArchitecture(const Job& job, uint32_t class_count);

// ---- networks that users write in TOML (docs/networks.md), if a job's model is a file

// A model's name with this ending is a file's path.
inline constexpr std::string_view kNetworkFileSuffix = ".toml";
inline bool IsNetworkFile(const std::string& model) { return model.ends_with(kNetworkFileSuffix); }

// Parses the network of `text`. It ends in class_count outputs if the file says "classes".
// kInvalidArgument: names the file, the line, the layer and what was expected. Graph::Build checks
// whether layers fit one another.
Result<Architecture> ParseNetworkFile(std::string_view text, const std::string& file_name,
                                      uint32_t class_count);

}  // namespace pando
