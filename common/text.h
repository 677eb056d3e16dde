// Functions for text: lists, numbers, names of enums, guesses for mistyped names, and cleaning of
// foreign text.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pando {

// Example: "a, b, c". (Not fmt::join: g++ 12 wrongly warns of an overflow in fmt 9.)
std::string Joined(const std::vector<std::string>& words);
std::string Joined(const std::vector<uint64_t>& numbers);

// Returns the parts before, between and after the separators, as views of the text. A separator at
// the end ends the last part: "a,b," has the parts of "a,b", and "" has none.
std::vector<std::string_view> SplitText(std::string_view text, char separator);

// Reads a text that is one number. Returns none if it is not a number, or if T cannot hold it.
template <class T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string BytesText(uint64_t bytes);  // "46.8 MB"

// The names of an enum's values 0, 1, ...; an enum with names defines them beside it.
template <class E>
inline constexpr std::array<const char*, 0> kEnumNames{};
template <class E>
constexpr const char* EnumName(E value) {
  return kEnumNames<E>[static_cast<size_t>(value)];
}
template <class E>
std::optional<E> ParseEnum(std::string_view name) {
  const auto at =
      std::ranges::find(kEnumNames<E>, name, [](const char* n) { return std::string_view(n); });
  if (at == kEnumNames<E>.end()) return std::nullopt;
  return static_cast<E>(at - kEnumNames<E>.begin());
}

// ---- guesses for an unknown word of a user (a data set, a flag, a key)

// Returns the number of insertions, deletions, substitutions and swaps of neighbours that turn a
// into b: the Damerau-Levenshtein distance in its restricted form (no edit between two swapped
// letters). Upper and lower case count as equal, and so do '-' and '_'.
size_t EditDistance(std::string_view a, std::string_view b);

// Returns up to three known names near `typed`, nearest first; equally near names keep their order.
// A name is near if it differs by one edit in three letters, or contains `typed` ("synthetic").
std::vector<std::string> NearestNames(std::string_view typed, std::span<const std::string> known);

// Example: "did you mean 'mnist' or 'fashion-mnist'?"; empty if no name is near.
std::string DidYouMean(std::string_view typed, std::span<const std::string> known);

// ---- foreign text, cleaned for one line of an error

// Writes control characters as "\n", "\t" or "\x1b". Cuts a text over kPrintableBytesMax, between
// characters of UTF-8, and appends "...".
inline constexpr size_t kPrintableBytesMax = 80;
std::string Printable(std::string_view text);

// Makes a text safe for a terminal: '?' replaces each control character (C0, DEL, C1) and those
// that change the direction of writing (U+202A to E, U+2066 to 9). Other bytes stay, even if they
// are not UTF-8. With kKept, tabs and line ends stay too.
enum class LineEnds { kKept, kReplaced };
std::string Cleaned(std::string_view text, LineEnds ends);

bool IsUtf8(std::string_view text);

// Writes the whole text as one line of UTF-8. Escapes control characters as Printable does, and
// each byte that is not part of a character ("caf\xe9"). A backslash is doubled, so that different
// texts stay different. The result survives JSON unchanged.
std::string AsUtf8(std::string_view text);

}  // namespace pando
