// Weights in several files, as Hugging Face writes them: shards, and an index that names the file
// of each tensor. safetensors_file.cc uses this, and so does code whose path may name shards.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/result.h"

namespace pando {

inline constexpr const char* kShardIndexEnding = ".safetensors.index.json";

// Returns the file to read at this path: for a folder its model.safetensors.index.json or
// model.safetensors; for a shard (model-00001-of-00003.safetensors) its index; otherwise the path.
std::string FindWeightsFile(const std::string& path);

using ShardNames = std::map<std::string, std::vector<std::string>>;  // by file: tensors
Result<ShardNames> ReadShardIndex(const std::string& path);

}  // namespace pando
