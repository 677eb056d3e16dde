// Networks that users write in TOML (docs/networks.md). Called where a job's model is a file.
#pragma once

#include <string>
#include <string_view>

#include "common/status.h"
#include "models/zoo.h"

namespace pando {

// A model's name with this ending is a file's path.
inline constexpr std::string_view kNetworkFileSuffix = ".toml";
inline bool IsNetworkFile(const std::string& model) { return model.ends_with(kNetworkFileSuffix); }

// The network of `text`. It ends in class_count outputs if the file says "classes".
// kInvalidArgument: names the file, the line, the layer and what was expected. Graph::Build checks
// whether layers fit one another.
Result<Architecture> ParseNetworkFile(std::string_view text, const std::string& file_name,
                                      uint32_t class_count);

}  // namespace pando
