#include "run/safetensors_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "files/run_files.h"
#include "run/json_depth.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kIndexBytesMax = 64 << 20;
constexpr std::string_view kEnding = ".safetensors";

// "model" of "model-00001-of-00003.safetensors"; empty: it is no shard, or the only one.
std::string StemOfShard(std::string_view name) {
  constexpr std::string_view kNumbers = "-00001-of-00003";
  if (!name.ends_with(kEnding) || name.size() <= kEnding.size() + kNumbers.size()) return "";
  name.remove_suffix(kEnding.size());
  const std::string_view numbers = name.substr(name.size() - kNumbers.size());
  for (size_t i = 0; i < kNumbers.size(); ++i) {
    const bool is_digit = numbers[i] >= '0' && numbers[i] <= '9';
    const bool should_be = kNumbers[i] >= '0' && kNumbers[i] <= '9';
    if (is_digit != should_be || (!is_digit && numbers[i] != kNumbers[i])) return "";
  }
  if (numbers.ends_with("-00001")) return "";
  return std::string(name.substr(0, name.size() - kNumbers.size()));
}

}  // namespace

std::string FindWeightsFile(const std::string& path) {
  std::error_code ignored;
  if (const std::string stem = StemOfShard(fs::path(path).filename().string()); !stem.empty())
    return (fs::path(path).parent_path() / (stem + kShardIndexEnding)).string();
  if (!fs::is_directory(path, ignored)) return path;
  for (const std::string& name :
       {std::string("model") + kShardIndexEnding, std::string("model").append(kEnding)}) {
    const fs::path file = fs::path(path) / name;
    if (fs::is_regular_file(file, ignored)) return file.string();
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
