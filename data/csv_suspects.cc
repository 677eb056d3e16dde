#include "data/csv_suspects.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "common/text.h"

namespace pando {
namespace {

struct Separator {
  char sign;
  const char* name;
  const char* for_shell;
};
constexpr auto kSeparators =
    std::to_array<Separator>({{'\t', "tabs", "\\t"}, {';', "semicolons", ";"}, {'|', "bars", "|"}});

constexpr auto kMissing =
    std::to_array<std::string_view>({"", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan",
                                     "-nan", "-NaN", "NULL", "null", "None", "?"});

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

size_t CountOutsideQuotes(std::string_view line, char sign) {
  size_t count = 0;
  bool is_quoted = false;
  for (const char c : line) {
    if (c == '"') is_quoted = !is_quoted;
    if (c == sign && !is_quoted) ++count;
  }
  return count;
}

// The first field of the row that is a number with a decimal comma; empty if none is.
std::string_view FindDecimalComma(std::string_view row, char separator) {
  while (!row.empty()) {
    const std::string_view field = row.substr(0, row.find(separator));
    if (field.find(',') != field.npos && !SuspectNumber(field).empty()) return field;
    row.remove_prefix(std::min(row.size(), field.size() + 1));
  }
  return {};
}

std::string_view TakeDigits(std::string_view& text) {
  const auto end = std::ranges::find_if_not(text, IsDigit);
  const std::string_view digits = text.substr(0, static_cast<size_t>(end - text.begin()));
  text.remove_prefix(digits.size());
  return digits;
}

bool TakeStart(std::string_view& text, std::string_view start) {
  if (!text.starts_with(start)) return false;
  text.remove_prefix(start.size());
  return true;
}

// "1,475", "31 745", "1'234.5" and "1.234,5": groups of three digits.
bool IsGrouped(std::string_view text) {
  constexpr auto kGroupSigns =
      std::to_array<std::string_view>({",", ".", "'", " ", "_", "\u00a0", "\u202f", "\u2019"});
  const size_t first = TakeDigits(text).size();
  if (first == 0 || first > 3) return false;
  const auto sign = std::ranges::find_if(kGroupSigns, [&](auto s) { return text.starts_with(s); });
  if (sign == kGroupSigns.end()) return false;
  size_t group_count = 0;
  while (TakeStart(text, *sign)) {
    if (TakeDigits(text).size() != 3) return false;
    ++group_count;
  }
  if (text.empty()) return *sign != "." || group_count > 1;  // 1.234 is a number
  if (!TakeStart(text, ",") && !TakeStart(text, ".")) return false;
  TakeDigits(text);
  return text.empty();
}

bool IsWithDecimalComma(std::string_view text) {
  const bool has_digits = !TakeDigits(text).empty();
  if (!TakeStart(text, ",")) return false;
  if (TakeDigits(text).empty() && !has_digits) return false;
  if (!TakeStart(text, "e") && !TakeStart(text, "E")) return text.empty();
  if (!TakeStart(text, "+")) TakeStart(text, "-");
  return !TakeDigits(text).empty() && text.empty();
}

bool IsPlainNumber(std::string_view text) {
  return !text.empty() && (IsDigit(text[0]) || text[0] == '.') && ParseNumber<double>(text);
}

}  // namespace

std::string SuspectEncoding(std::string_view start) {
  const bool has_mark = start.starts_with("\xff\xfe") || start.starts_with("\xfe\xff");
  if (has_mark || start.find('\0') != start.npos)
    return "the file seems to be UTF-16, expected UTF-8; convert it: iconv -f UTF-16 -t UTF-8";
  const size_t end = start.find('\r');
  if (end == start.npos || end + 1 == start.size()) return "";
  return "lines end with CR alone, expected LF or CRLF; convert it: tr '\\r' '\\n'";
}

std::string SuspectSeparator(std::string_view header, std::string_view row) {
  const size_t commas = CountOutsideQuotes(header, ',');
  for (const Separator& separator : kSeparators) {
    const size_t count = CountOutsideQuotes(header, separator.sign);
    const bool fits = row.empty() || CountOutsideQuotes(row, separator.sign) == count;
    if (count <= commas || (commas > 0 && !fits)) continue;
    const std::string_view number = FindDecimalComma(row, separator.sign);
    if (number.empty()) {
      return fmt::format(
          "columns seem to be separated by {}, expected commas; convert it: tr '{}' ,",
          separator.name, separator.for_shell);
    }
    return fmt::format(
        "columns seem to be separated by {}, and numbers to have a decimal comma ('{}' in the "
        "first row), expected commas and points; convert it: sed 's/,/./g; s/{}/,/g'",
        separator.name, number, separator.for_shell);
  }
  if (commas > 0 || header.find(' ') == header.npos || row.find(',') != row.npos) return "";
  return "columns seem to be separated by blanks, expected commas; convert it: tr -s ' ' ,";
}

std::string SuspectHeader(const std::vector<std::string>& names) {
  const auto is_number = [](const std::string& name) {
    return ParseNumber<double>(name).has_value();
  };
  const auto is_fraction = [&](const std::string& name) {
    return is_number(name) && name.find('.') != name.npos;
  };
  auto found = std::ranges::find_if(names, is_fraction);
  if (found == names.end() && std::ranges::all_of(names, is_number)) found = names.begin();
  if (found == names.end()) return "";
  return fmt::format(
      "holds the number '{}' where the name of a column is expected: the header seems to be "
      "missing; put a line of names above the rows",
      *found);
}

std::string SuspectNumber(std::string_view text) {
  const bool has_minus = TakeStart(text, "\u2212");
  if (!has_minus && !TakeStart(text, "-")) TakeStart(text, "+");
  const bool has_unit = TakeStart(text, "$") || TakeStart(text, "\u20ac") ||
                        TakeStart(text, "\u00a3") || text.ends_with('%');
  if (text.ends_with('%')) text.remove_suffix(1);
  while (TakeStart(text, " ")) {
  }
  while (text.ends_with(' ')) text.remove_suffix(1);
  if (IsGrouped(text))
    return "it looks like a number with signs between its thousands, or with a decimal comma; "
           "write digits and a decimal point alone (1475.5)";
  if (IsWithDecimalComma(text))
    return "it looks like a number with a decimal comma; write a decimal point (1475.5)";
  if (!has_minus && !has_unit) return "";
  if (!IsPlainNumber(text)) return "";
  return has_unit ? "it looks like a number with a unit; write the number alone"
                  : "it looks like a number with a typographic minus; write -1.5";
}

bool IsMissing(std::string_view text) {
  return std::ranges::find(kMissing, text) != kMissing.end();
}

}  // namespace pando
