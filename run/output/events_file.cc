#include "run/output/events_file.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

namespace pando {

std::string UtcText(std::chrono::system_clock::time_point time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time - seconds).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), ms);
}

std::optional<std::chrono::system_clock::time_point> ParseUtcText(const std::string& text) {
  std::tm parts{};
  int ms = 0;
  int length = 0;
  const int count =
      std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &parts.tm_year, &parts.tm_mon,
                  &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &ms, &length);
  if (count != 7 || static_cast<size_t>(length) != text.size()) return std::nullopt;
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return std::chrono::system_clock::from_time_t(timegm(&parts)) + std::chrono::milliseconds(ms);
}

namespace {

struct EventTime {
  std::chrono::system_clock::time_point at;
  std::chrono::milliseconds elapsed{0};
};

std::optional<EventTime> ReadEventTime(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("time") || !json.contains("elapsed_ms"))
    return std::nullopt;
  if (!json["time"].is_string() || !json["elapsed_ms"].is_number()) return std::nullopt;
  const auto at = ParseUtcText(json["time"].get<std::string>());
  if (!at) return std::nullopt;
  return EventTime{*at, std::chrono::milliseconds(json["elapsed_ms"].get<int64_t>())};
}

}  // namespace

Result<EventsFile> EventsFile::Create(const RunFolder& folder) {
  PANDO_ASSIGN_OR_RETURN(RowFile file, RowFile::Create(folder.EventsPath()));
  return EventsFile(std::move(file));
}

Result<EventsFile> EventsFile::Reopen(const RunFolder& folder, Gap gap) {
  std::string line;
  const auto is_sound = [](std::string_view text) { return ReadEventTime(text).has_value(); };
  PANDO_ASSIGN_OR_RETURN(RowFile file, RowFile::Reopen(folder.EventsPath(), is_sound, &line));
  EventsFile events(std::move(file));
  const std::optional<EventTime> last = ReadEventTime(line);
  if (!last) return events;
  events.start_ -= last->elapsed;
  const auto since = std::chrono::system_clock::now() - last->at;
  if (gap == Gap::kCounts) {
    events.start_ -= std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::max(since, std::chrono::system_clock::duration(0)));
  }
  return events;
}

uint64_t CountEvents(const RunFolder& folder, std::string_view event) {
  std::ifstream file(folder.EventsPath());
  const std::string mark = fmt::format("\"event\":\"{}\"", event);
  uint64_t count = 0;
  for (std::string line; std::getline(file, line);) count += line.find(mark) != std::string::npos;
  return count;
}

Status EventsFile::Append(std::string_view event, const nlohmann::json& details) {
  const auto elapsed = std::chrono::steady_clock::now() - start_;
  nlohmann::ordered_json line;
  line["time"] = UtcText(std::chrono::system_clock::now());
  line["elapsed_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(elapsed).count();
  line["event"] = event;
  line["details"] = details;
  return rows_.Append(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace pando
