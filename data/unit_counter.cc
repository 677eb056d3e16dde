#include "data/unit_counter.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "data/ascii_form.h"
#include "data/csv_suspects.h"

namespace pando {
namespace {

constexpr size_t kTextsMax = 64;
constexpr size_t kTextBytesMax = 24;
// Words with more different numbers than these are no names. A day has 12 hours, twice.
constexpr size_t kWholeNames = 12;
constexpr size_t kFractionNames = 4;
constexpr std::string_view kDigits = "0123456789";

bool IsDigit(char c) { return kDigits.find(c) != kDigits.npos; }
bool IsLetter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalpha(byte) != 0;
}

// Letters before a number make it a name (A5, zone 5), except for a currency's letters.
bool MayStandBefore(std::string_view text) {
  constexpr auto kCodes = std::to_array<std::string_view>(
      {"EUR", "USD", "GBP", "JPY", "CHF", "CNY", "RMB", "INR", "RUB",   "BRL", "CAD",
       "AUD", "NZD", "SEK", "NOK", "DKK", "PLN", "CZK", "HUF", "TRY",   "MXN", "ZAR",
       "KRW", "SGD", "HKD", "RS",  "KR",  "FR",  "DM",  "CA",  "APPROX"});
  if (text.find('#') != text.npos) return false;
  if (text.find('$') != text.npos || std::ranges::none_of(text, IsLetter)) return true;
  std::string word;
  for (const char c : text) {
    if (c != ' ' && c != '.' && c != ':')
      word += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return std::ranges::find(kCodes, word) != kCodes.end();
}

// No other number may follow, as in 10:30 and 18-25. But a unit may have digits: m2.
bool MayStandAfter(std::string_view text) {
  constexpr auto kOrdinals = std::to_array<std::string_view>({"st", "nd", "rd", "th"});
  if (text.size() > kTextBytesMax) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsDigit(text[i]) && (i == 0 || !(IsLetter(text[i - 1]) || IsDigit(text[i - 1]))))
      return false;
  }
  return std::ranges::find(kOrdinals, text) == kOrdinals.end();
}

// Returns the end of the number that begins at `first`: "1.5e-3", "1,475", "1 475".
size_t FindEnd(std::string_view text, size_t first) {
  const auto has_digit = [&](size_t at) { return at < text.size() && IsDigit(text[at]); };
  size_t end = std::min(text.find_first_of(kDigits, first), text.size());
  while (has_digit(end) ||
         (end < text.size() && std::string_view(".,' ").find(text[end]) != std::string_view::npos &&
          has_digit(end + 1)))
    ++end;
  const size_t sign = end + (text.substr(end).starts_with("e-") ? 2 : 1);
  if (!text.substr(end).starts_with('e') || !has_digit(sign)) return end;
  return std::min(text.find_first_not_of(kDigits, sign), text.size());
}

struct Parts {
  std::string around;  // with a 0 instead of the number
  std::string number;
};

std::optional<Parts> TakeApart(const std::string& word) {
  const std::string text = AsciiForm(word);
  size_t first = text.find_first_of(kDigits);
  if (first == text.npos) return std::nullopt;
  while (first > 0 && std::string_view(".-+").find(text[first - 1]) != std::string_view::npos)
    --first;
  const size_t end = FindEnd(text, first);
  const std::string before = text.substr(0, first), after = text.substr(end);
  Parts parts{before + "0" + after, text.substr(first, end - first)};
  if (parts.around.size() == 1 || !MayStandBefore(before) || !MayStandAfter(after))
    return std::nullopt;
  return IsNumberInAnyNotation(parts.number) ? std::optional(parts) : std::nullopt;
}

}  // namespace

void UnitCounter::Add(const std::string& word, uint64_t line) {
  std::optional<Parts> parts = TakeApart(word);
  if (!parts || (by_text_.size() == kTextsMax && !by_text_.contains(parts->around))) return;
  Column& column = by_text_[parts->around];
  if (column.count++ == 0) static_cast<Found&>(column) = {1, line, word};
  column.has_fractions |= parts->number.find_first_of(".,") != parts->number.npos;
  if (column.numbers.size() <= kWholeNames) column.numbers.insert(std::move(parts->number));
}

UnitCounter::Found UnitCounter::Find() const {
  std::vector<const Column*> columns;
  for (const auto& [text, column] : by_text_) columns.push_back(&column);
  std::ranges::stable_sort(columns, std::ranges::greater(), &Column::count);
  Found found;
  bool are_numbers = false;
  for (const Column* column : std::span(columns).first(std::min<size_t>(columns.size(), 2))) {
    const bool is_first = found.count == 0 || column->first_line < found.first_line;
    found = {found.count + column->count, is_first ? column->first_line : found.first_line,
             is_first ? column->first : found.first};
    const size_t size = column->numbers.size();
    are_numbers |= size > kFractionNames &&
                   (column->has_fractions || size > kWholeNames || size == column->count);
  }
  return are_numbers ? found : Found();
}

}  // namespace pando
