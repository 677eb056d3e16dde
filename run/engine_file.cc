#include "run/engine_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/atomic_file.h"
#include "common/text.h"
#include "files/json_depth.h"
#include "job/job_file.h"
#include "proto/message_limits.h"

namespace pando {
namespace {

using Json = nlohmann::json;

constexpr const char* kEngine = "engine";
constexpr const char* kKnobs = "knobs";
constexpr const char* kWorkspace = "workspace_bytes";
constexpr const char* kReason = "reason";

Json ToJson(const EngineChoice& choice) {
  Json json = Json::object();
  for (const auto& [problem, engine] : choice) {
    Json knobs = Json::object();
    for (const auto& [type, value] : engine.knobs) knobs[std::to_string(type)] = value;
    json[problem] = {{kEngine, engine.index},
                     {kKnobs, std::move(knobs)},
                     {kWorkspace, engine.workspace_bytes},
                     {kReason, engine.reason}};
  }
  return json;
}

Result<EngineChoice> FromJson(const Json& json, const std::string& where) {
  EngineChoice choice;
  std::string at = where;
  try {
    for (const auto& [problem, fields] : json.get<std::map<std::string, Json>>()) {
      at = fmt::format("{}: '{}'", where, problem);
      ConvEngine& engine = choice[problem];
      if (!fields.at(kEngine).is_number_integer() || !fields.at(kWorkspace).is_number_unsigned())
        return InvalidArgument(
            fmt::format("{}: {} and {} must be whole numbers", at, kEngine, kWorkspace));
      engine.index = fields.at(kEngine).get<int64_t>();
      engine.workspace_bytes = fields.at(kWorkspace).get<uint64_t>();
      engine.reason = fields.at(kReason).get<std::string>();
      for (const auto& [type, value] : fields.at(kKnobs).get<std::map<std::string, Json>>()) {
        const std::optional<int64_t> number = ParseNumber<int64_t>(type);
        if (!number || !value.is_number_integer())
          return InvalidArgument(fmt::format("{}: '{}' is no number of a knob", at, type));
        engine.knobs[*number] = value.get<int64_t>();
      }
    }
  } catch (const Json::exception& error) {
    return InvalidArgument(
        fmt::format("{}: expected a convolution's engine: {}", at, error.what()));
  }
  return choice;
}

// Not an object where the text is none.
Json ParseObject(std::string_view text) {
  return IsDeepJson(text) ? Json() : Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace

Result<std::string> EnginesText(const EngineChoice& choice) {
  std::string text = ToJson(choice).dump();
  if (text.size() <= kEnginesBytesMax) return text;
  return InvalidArgument(
      fmt::format("the engines of {} convolutions take {} bytes; at most {} were expected; train "
                  "without --tune-engines",
                  choice.size(), text.size(), kEnginesBytesMax));
}

Result<EngineChoice> ParseEngines(std::string_view text, const std::string& where) {
  const Json json = ParseObject(text);
  if (json.is_object()) return FromJson(json, where);
  return InvalidArgument(where + ": expected a JSON object of engines by convolution");
}

Result<std::vector<KindEngines>> ReadEnginesFile(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  const Json json = ParseObject(text);
  if (!json.is_object())
    return InvalidArgument(path + ": expected a JSON object of engines by kind of GPU");
  std::vector<KindEngines> engines;
  for (const auto& [kind, choice] : json.items()) {
    PANDO_ASSIGN_OR_RETURN(const EngineChoice parsed, FromJson(choice, path + ": " + kind));
    PANDO_ASSIGN_OR_RETURN(std::string one, EnginesText(parsed));
    engines.push_back({kind, std::move(one)});
  }
  return engines;
}

Status WriteEnginesFile(const std::string& path, const std::vector<KindEngines>& engines) {
  Json json = Json::object();
  for (const KindEngines& entry : engines) {
    PANDO_ASSIGN_OR_RETURN(const EngineChoice choice, ParseEngines(entry.engines, entry.kind));
    json[entry.kind] = ToJson(choice);
  }
  // A kind comes from a worker, and may be no UTF-8.
  return WriteFileAtomically(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n",
                             FileAccess::kAsFolder);
}

Result<std::vector<KindEngines>> ReadGivenEngines(const Job& job) {
  if (job.engines.empty()) return std::vector<KindEngines>();
  return ReadEnginesFile(job.engines);
}

Result<std::vector<KindEngines>> ReadKeptEngines(const RunFolder& folder) {
  std::error_code ignored;  // a file that cannot be looked at shows when it is read
  const bool is_there = std::filesystem::exists(folder.EnginesPath(), ignored);
  if (!is_there && !ignored) return std::vector<KindEngines>();
  return ReadEnginesFile(folder.EnginesPath());
}

Status KeepEngines(const RunFolder& folder, KindEngines engines) {
  PANDO_ASSIGN_OR_RETURN(std::vector<KindEngines> kept, ReadKeptEngines(folder));
  kept.push_back(std::move(engines));
  return WriteEnginesFile(folder.EnginesPath(), kept);
}

Result<std::string> FindKeptEngines(const RunFolder& folder, const std::string& kind) {
  PANDO_ASSIGN_OR_RETURN(const std::vector<KindEngines> kept, ReadKeptEngines(folder));
  const auto found = std::ranges::find(kept, kind, &KindEngines::kind);
  return found == kept.end() ? std::string() : found->engines;
}

Status UseKeptEngines(const RunFolder& folder, OpenedDevice& device, bool must) {
  if (!device.gpu) return Status();
  PANDO_ASSIGN_OR_RETURN(const std::string engines, FindKeptEngines(folder, device.kind));
  if (engines.empty() && must)
    return NotFound(
        fmt::format("{} has no engines of '{}'; compute where the run's workers computed",
                    folder.EnginesPath(), device.kind));
  if (engines.empty()) return Status();
  PANDO_ASSIGN_OR_RETURN(const EngineChoice choice, ParseEngines(engines, folder.EnginesPath()));
  device.gpu->UseEngines(choice);
  return Status();
}

}  // namespace pando
