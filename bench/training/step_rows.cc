#include "bench/training/step_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "common/check.h"

namespace pando::bench {
namespace {

std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == ',') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

template <class T>
bool Parse(const std::string& text, T* value) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && rest == end;
}

}  // namespace

Status StepRows::Add(const std::string& line) {
  if (heading_.empty()) {
    heading_ = Fields(line);
    return Status();
  }
  const std::vector<std::string> fields = Fields(line);
  const auto read = [&](std::string_view column, auto* value) {
    const auto at = std::ranges::find(heading_, column);
    const auto index = static_cast<size_t>(at - heading_.begin());
    return at != heading_.end() && index < fields.size() && Parse(fields[index], value);
  };
  StepRow row;
  if (!read("step", &row.step) || !read("elapsed_seconds", &row.elapsed_s) ||
      !read("exposed_sync_ms", &row.exposed_sync_ms)) {
    return Corrupt(fmt::format(
        "metrics.csv: '{}' has no step, elapsed_seconds and exposed_sync_ms; is pando of another "
        "release than pando-bench?",
        line));
  }
  rows_.push_back(row);
  return Status();
}

Pace PaceBetween(const std::vector<StepRow>& rows, size_t first, size_t last) {
  PANDO_CHECK(first < last && last < rows.size());
  Pace pace{.step_count = rows[last].step - rows[first].step,
            .seconds = rows[last].elapsed_s - rows[first].elapsed_s};
  for (size_t i = first + 1; i <= last; ++i) pace.exposed_sync_ms += rows[i].exposed_sync_ms;
  pace.exposed_sync_ms /= static_cast<double>(last - first);
  return pace;
}

}  // namespace pando::bench
