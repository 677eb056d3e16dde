// EventsFile writes events.jsonl: {"time", "elapsed_ms", "event", "details"} per line. Rows that a
// full disk refuses are held, as in MetricsFile.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "run/output/patient_rows.h"
#include "run/output/row_file.h"
#include "run/run_folder.h"

namespace pando {

class EventsFile {
 public:
  static Result<EventsFile> Create(const RunFolder& folder);  // elapsed_ms counts from here
  // Continues after the last whole line. The time since that line counts in elapsed_ms if the run
  // continued without its scheduler, and does not if nothing ran (`pando resume`).
  enum class Gap { kCounts, kIsLeftOut };
  static Result<EventsFile> Reopen(const RunFolder& folder, Gap gap);
  // The beginning of the run, on the machine's steady clock, without gaps.
  std::chrono::steady_clock::time_point start() const { return start_; }
  Status Append(std::string_view event, const nlohmann::json& details);
  PatientRows& rows() { return rows_; }

 private:
  explicit EventsFile(RowFile file) : rows_(std::move(file)) {}
  PatientRows rows_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Counts the lines of events.jsonl with this event.
uint64_t CountEvents(const RunFolder& folder, std::string_view event);

// Returns for example "2026-01-31T12:00:00.123Z" (RFC 3339).
std::string UtcText(std::chrono::system_clock::time_point time);
std::optional<std::chrono::system_clock::time_point> ParseUtcText(const std::string& text);

}  // namespace pando
