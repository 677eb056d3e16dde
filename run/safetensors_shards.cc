#include "run/safetensors_shards.h"

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "files/folder_files.h"
#include "files/json_depth.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kIndexBytesMax = 64 << 20;
constexpr std::string_view kEnding = ".safetensors";

}  // namespace

std::string FindWeightsFile(const std::string& path) {
  std::error_code ignored;
  const size_t of = path.rfind("-of-");  // model-00001-of-00003.safetensors
  std::vector<std::string> candidates;
  if (of != path.npos && path.ends_with(kEnding))
    candidates.push_back(path.substr(0, path.rfind('-', of - 1)) + kShardIndexEnding);
  else if (fs::is_directory(path, ignored))
    candidates = {path + "/model" + kShardIndexEnding, path + "/model.safetensors"};
  for (const std::string& file : candidates) {
    if (fs::is_regular_file(file, ignored)) return file;
  }
  return path;
}

Result<ShardNames> ReadShardIndex(const std::string& path) {
  const auto bad = [&](const std::string& why) {
    return Corrupt(
        fmt::format("{}: {}, expected an index of safetensors files: {{\"weight_map\": "
                    "{{TENSOR: FILE, ...}}}}",
                    path, why));
  };
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, OpenFile(path));
  if (file->size() > kIndexBytesMax) return bad(fmt::format("has {} bytes", file->size()));
  std::string text(file->size(), '\0');
  PANDO_RETURN_IF_ERROR(file->Read(0, std::as_writable_bytes(std::span(text))));
  if (IsDeepJson(text)) return bad("is nested too deeply");
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object() || map->empty())
    return bad("holds no weight_map");
  ShardNames shards;
  for (const auto& [tensor, value] : map->items()) {
    const std::string name = value.is_string() ? value.get<std::string>() : "";
    if (!name.ends_with(kEnding) || fs::path(name).filename() != name)
      return bad(fmt::format("the file of '{}' is {}", tensor, value.dump()));
    shards[name].push_back(tensor);
  }
  return shards;
}

}  // namespace pando
