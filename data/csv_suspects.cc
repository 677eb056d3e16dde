#include "data/csv_suspects.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "common/text.h"
#include "data/ascii_form.h"

namespace pando {
namespace {

struct Separator {
  char sign;
  const char* name;
  const char* for_tr;
  const char* for_sed;
};
constexpr auto kSeparators = std::to_array<Separator>(
    {{'\t', "tabs", "'\\t'", "\\t"}, {';', "semicolons", "';'", ";"}, {'|', "bars", "'|'", "|"}});
constexpr Separator kBlanks{' ', "blanks", "-s ' '", "  *"};

constexpr auto kMissing =
    std::to_array<std::string_view>({"", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan",
                                     "NAN", "-nan", "-NaN", "NaT", "NULL", "null", "None", "?"});

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

std::string_view Unquoted(std::string_view field) {
  if (field.size() < 2 || field.front() != '"' || field.back() != '"') return field;
  return field.substr(1, field.size() - 2);
}

// Returns the row's first field that is a number with a decimal comma; empty if none is.
std::string_view FindDecimalComma(std::string_view row, char separator) {
  while (!row.empty()) {
    const std::string_view field = row.substr(0, row.find(separator));
    const std::string_view text = Unquoted(field);
    if (text.find(',') != text.npos && !SuspectNumber(text).empty()) return text;
    row.remove_prefix(std::min(row.size(), field.size() + 1));
  }
  return {};
}

std::string SeparatorText(const Separator& separator, std::string_view decimal_comma) {
  if (decimal_comma.empty()) {
    return fmt::format("columns seem to be separated by {}, expected commas; convert it: tr {} ,",
                       separator.name, separator.for_tr);
  }
  return fmt::format(
      "columns seem to be separated by {}, and numbers to have a decimal comma ('{}' in the "
      "first row), expected commas and points; convert it: sed 's/,/./g; s/{}/,/g'",
      separator.name, decimal_comma, separator.for_sed);
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

// Recognises groups: "1,475", "31 745", "1'234.5", "1.234,5", and "12,34,567" as in India.
bool IsGrouped(std::string_view text) {
  constexpr std::string_view kGroupSigns = ",.' _";
  const size_t first = TakeDigits(text).size();
  if (first == 0 || first > 3) return false;
  const std::string_view sign = text.substr(0, 1);
  if (sign.empty() || kGroupSigns.find(sign) == kGroupSigns.npos) return false;
  size_t group_count = 0, last_size = 0;
  while (TakeStart(text, sign)) {
    if (last_size == 2 && sign != ",") return false;
    last_size = TakeDigits(text).size();
    if (last_size != 2 && last_size != 3) return false;
    ++group_count;
  }
  if (last_size != 3) return false;
  if (text.empty()) return sign != "." || group_count > 1;  // 1.234 is a number
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

// Recognises "1.5D-3". A text without a point may be a code.
bool IsWithFortranExponent(std::string_view text) {
  const size_t at = text.find_first_of("Dd");
  if (at == text.npos || text.substr(0, at).find('.') == text.npos) return false;
  std::string with_e(text);
  with_e[at] = 'e';
  return IsPlainNumber(with_e);
}

bool TakeEnds(std::string_view& text, std::string_view start, std::string_view end) {
  if (text.size() <= start.size() + end.size() || !text.starts_with(start) || !text.ends_with(end))
    return false;
  text = text.substr(start.size(), text.size() - start.size() - end.size());
  return true;
}

// Removes a sign, a currency or per cent, and blanks around the number.
bool TakeSign(std::string_view& text) {
  const bool has_sign = TakeStart(text, "-") || TakeStart(text, "+");
  text = Trimmed(text);
  return has_sign;
}
bool TakeUnit(std::string_view& text) {
  const bool has_unit = TakeStart(text, "$") || TakeEnds(text, "", "$") || TakeEnds(text, "", "%");
  text = Trimmed(text);
  return has_unit;
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
    return SeparatorText(separator, FindDecimalComma(row, separator.sign));
  }
  if (commas > 0 || header.find(' ') == header.npos) return "";
  if (row.find(',') == row.npos) return SeparatorText(kBlanks, "");
  const std::string_view number = FindDecimalComma(row, kBlanks.sign);
  if (number.empty() || row.find(' ') == row.npos) return "";
  return SeparatorText(kBlanks, number);
}

std::string SuspectHeader(const std::vector<std::string>& names, HeaderNames known) {
  const auto is_number = [](std::string_view name) {
    if (!TakeStart(name, "-")) TakeStart(name, "+");
    return IsPlainNumber(name);
  };
  const auto is_no_year = [&](const std::string& name) {
    return is_number(name) && !std::ranges::all_of(name, IsDigit);
  };
  auto found = std::ranges::find_if(names, is_no_year);
  const bool are_all = std::ranges::all_of(names, is_number);
  if (found == names.end() && (are_all || known == HeaderNames::kOneIsUnknown))
    found = std::ranges::find_if(names, is_number);
  if (found == names.end()) return "";
  return fmt::format(
      "holds the number '{}' where the name of a column is expected: the header seems to be "
      "missing; put a line of names above the rows",
      *found);
}

bool IsNumberInAnyNotation(std::string_view text) {
  if (!TakeStart(text, "-")) TakeStart(text, "+");
  return IsPlainNumber(text) || IsGrouped(text) || IsWithDecimalComma(text);
}

std::string SuspectNumber(std::string_view text) {
  const std::string ascii = AsciiForm(text);
  std::string_view rest = Trimmed(ascii);
  TakeStart(rest, "=");  // ="0.5" and '0.5 keep a text in a spreadsheet
  if (!TakeEnds(rest, "\"", "\"")) TakeEnds(rest, "'", "");
  TakeEnds(rest, "(", ")");
  const bool has_sign = TakeSign(rest), has_unit = TakeUnit(rest);
  if (!has_sign && !TakeSign(rest)) TakeEnds(rest, "", "-");
  if (IsGrouped(rest))
    return "it looks like a number with signs between its thousands, or with a decimal comma; "
           "write digits and a decimal point alone (1475.5)";
  if (IsWithDecimalComma(rest))
    return "it looks like a number with a decimal comma; write a decimal point (1475.5)";
  if (IsWithFortranExponent(rest))
    return "it looks like a number with Fortran's exponent; write 1.5e-3";
  if (!IsPlainNumber(rest) || rest == text) return "";
  if (has_unit) return "it looks like a number with a unit; write the number alone";
  return "it looks like a number with other signs than a minus, digits and a point; write -1475.5";
}

bool IsMissing(std::string_view text) {
  return std::ranges::find(kMissing, text) != kMissing.end();
}

}  // namespace pando
