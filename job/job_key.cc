#include "job/job_key.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "common/text.h"

namespace pando {
namespace {

bool IsInRange(const ValueRange& range, double value) {
  if (!std::isfinite(value) || value < range.min || value > range.max) return false;
  if (range.is_min_excluded && value == range.min) return false;
  return !range.is_max_excluded || value != range.max;
}

std::string_view Trimmed(std::string_view text, std::string_view what) {
  text.remove_prefix(std::min(text.find_first_not_of(what), text.size()));
  return text.substr(0, text.find_last_not_of(what) + 1);
}

// Reads "crop,flip" or "[\"crop\", \"flip\"]"; "" is an empty list.
std::vector<std::string> ParseTexts(std::string_view text) {
  std::vector<std::string> list;
  std::string_view rest = Trimmed(text, " ");
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  for (const std::string_view part : SplitText(rest, ',')) list.emplace_back(Trimmed(part, " \""));
  return list;
}

// Reads "128,64" or "[128, 64]"; "" is an empty list.
std::optional<std::vector<uint64_t>> ParseList(std::string_view text) {
  std::vector<uint64_t> list;
  for (const std::string& digits : ParseTexts(text)) {
    auto element = ParseNumber<uint64_t>(digits);
    if (!element) return std::nullopt;
    list.push_back(*element);
  }
  return list;
}

std::optional<JobValue> ReadAs(ValueKind kind, std::string_view text) {
  switch (kind) {
    case ValueKind::kCount:
      return ParseNumber<uint64_t>(text);
    case ValueKind::kReal:
      return ParseNumber<double>(text);
    case ValueKind::kBool:
      if (text == "true") return true;
      if (text == "false") return false;
      return std::nullopt;
    case ValueKind::kCountList:
      return ParseList(text);
    case ValueKind::kTextList:
      return ParseTexts(text);
    default:
      return std::string(text);
  }
}

std::string QuotedToml(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

bool IsChoice(const JobKey& key, const std::string& text, std::string* hint) {
  if (std::find(key.choices.begin(), key.choices.end(), text) != key.choices.end()) return true;
  if (!key.file_suffix.empty() && text.ends_with(key.file_suffix)) return true;
  *hint = DidYouMean(text, key.choices);
  if (!hint->empty()) *hint = "; " + *hint;
  return false;
}

}  // namespace

std::string RangeText(const ValueRange& range) {
  const bool is_bounded = range.max != ValueRange().max;
  if (is_bounded && !range.is_min_excluded && !range.is_max_excluded) {
    return fmt::format("from {:.15g} to {:.15g}", range.min, range.max);
  }
  const std::string text = fmt::format("{} {:.15g}", range.is_min_excluded ? ">" : "≥", range.min);
  if (!is_bounded) return text;
  return fmt::format("{} and {} {:.15g}", text, range.is_max_excluded ? "<" : "≤", range.max);
}

std::string ExpectedValue(const JobKey& key) {
  switch (key.kind) {
    case ValueKind::kCount:
      return "a whole number " + RangeText(key.range);
    case ValueKind::kReal:
      return "a number " + RangeText(key.range);
    case ValueKind::kBool:
      return "true or false";
    case ValueKind::kText:
      return "a text";
    case ValueKind::kCountList:
      return "a list of whole numbers, each " + RangeText(key.range);
    case ValueKind::kTextList:
      return key.choices.empty() ? "a list of texts" : "a list, each one of " + Joined(key.choices);
    case ValueKind::kChoice:
      return "one of " + Joined(key.choices) +
             (key.file_suffix.empty() ? "" : ", or a file's path that ends in " + key.file_suffix);
  }
  return "";
}

// Job files, journals and messages are UTF-8, so other texts could be used but not written down.
Status CheckUtf8(const JobKey& key, const std::string& text) {
  if (IsUtf8(text)) return Status();
  return InvalidArgument(
      fmt::format("{} must be UTF-8 text, got '{}'; rename it, or make a symbolic link to it",
                  key.name, AsUtf8(text)));
}

Status CheckJobValue(const JobKey& key, const JobValue& value) {
  bool fits = true;
  std::string hint;
  if (auto* count = std::get_if<uint64_t>(&value)) {
    // The largest integer of TOML is 2^63 - 1.
    fits = IsInRange(key.range, static_cast<double>(*count)) && *count <= uint64_t{INT64_MAX};
  } else if (auto* real = std::get_if<double>(&value)) {
    fits = IsInRange(key.range, *real);
  } else if (auto* list = std::get_if<std::vector<uint64_t>>(&value)) {
    for (uint64_t element : *list)
      fits = fits && IsInRange(key.range, static_cast<double>(element));
  } else if (auto* text = std::get_if<std::string>(&value); key.kind == ValueKind::kChoice) {
    fits = IsChoice(key, *text, &hint);
  } else if (text != nullptr) {
    PANDO_RETURN_IF_ERROR(CheckUtf8(key, *text));
  } else if (auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& element : *texts) {
      PANDO_RETURN_IF_ERROR(CheckUtf8(key, element));
      fits = fits && (key.choices.empty() || IsChoice(key, element, &hint));
    }
  }
  if (fits) return Status();
  return InvalidArgument(fmt::format("{} must be {}, got {}{}", key.name, ExpectedValue(key),
                                     JobValueToml(value), hint));
}

Result<JobValue> ParseJobValue(const JobKey& key, std::string_view text) {
  std::optional<JobValue> value = ReadAs(key.kind, text);
  if (!value) {
    return InvalidArgument(
        fmt::format("{} must be {}, got '{}'", key.name, ExpectedValue(key), text));
  }
  PANDO_RETURN_IF_ERROR(CheckJobValue(key, *value));
  return *std::move(value);
}

std::string JobValueToml(const JobValue& value) {
  if (auto* count = std::get_if<uint64_t>(&value)) return fmt::format("{}", *count);
  if (auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (auto* text = std::get_if<std::string>(&value)) return QuotedToml(*text);
  if (auto* list = std::get_if<std::vector<uint64_t>>(&value)) {
    return fmt::format("[{}]", Joined(*list));
  }
  if (auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    std::vector<std::string> quoted;
    for (const std::string& element : *texts) quoted.push_back(QuotedToml(element));
    return fmt::format("[{}]", Joined(quoted));
  }
  // The shortest text that reads back as the same number. TOML needs a mark that this is a real.
  std::string real = fmt::format("{}", std::get<double>(value));
  const bool is_integral = real.find_first_not_of("-0123456789") == std::string::npos;
  return is_integral ? real + ".0" : real;
}

}  // namespace pando
