// Weights in several files, as Hugging Face writes them: shards, and an index that says which
// tensor is in which file. Called by safetensors_file.cc, and where a path may name them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/status.h"

namespace pando {

inline constexpr const char* kShardIndexEnding = ".safetensors.index.json";

// The file to read at this path: of a folder with model.safetensors.index.json or model.safetensors
// that file, of a shard (model-00001-of-00003.safetensors) its index; else the path.
std::string FindWeightsFile(const std::string& path);

using ShardNames = std::map<std::string, std::vector<std::string>>;  // file in the folder: tensors
Result<ShardNames> ReadShardIndex(const std::string& path);

}  // namespace pando
