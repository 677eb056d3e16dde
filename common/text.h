// Text: lists, numbers and names as words, names that a user mistyped, and text from outside.
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

// "a, b, c". (Not fmt::join: g++ 12 wrongly warns of an overflow in fmt 9.)
std::string Joined(const std::vector<std::string>& words);
std::string Joined(const std::vector<uint64_t>& numbers);

// The number that the whole text is. None if it is not a number, or if T cannot hold it.
template <class T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string BytesText(uint64_t bytes);  // "46.8 MB"

// The names of an enum's values 0, 1, ...; each enum with names has them beside it.
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

// ---- what a user probably meant by an unknown word (a data set, a flag, a key)

// Insertions, deletions, substitutions and swaps of neighbours that turn a into b: the
// Damerau-Levenshtein distance in its restricted form (no edit between two swapped letters).
// Case and '-' against '_' count as equal.
size_t EditDistance(std::string_view a, std::string_view b);

// The known names near `typed`, nearest first, at most three; equally near ones keep their order.
// Near: one edit in three letters, or typed in full as a part of the name ("synthetic").
std::vector<std::string> NearestNames(std::string_view typed, std::span<const std::string> known);

// "did you mean 'mnist' or 'fashion-mnist'?"; empty if nothing is near.
std::string DidYouMean(std::string_view typed, std::span<const std::string> known);

// ---- text from outside, made fit for a line of an error

// Control characters become "\n", "\t" or "\x1b". A text over kPrintableBytesMax is cut and gets
// "...". UTF-8 is cut between characters.
inline constexpr size_t kPrintableBytesMax = 80;
std::string Printable(std::string_view text);

// The text as a terminal may show it: '?' stands for each control character (C0, DEL, C1), and for
// those that change the direction of writing (U+202A to E, U+2066 to 9). Other bytes stay, also
// those that are no UTF-8. kKept: tabs and the ends of lines stay, too.
enum class LineEnds { kKept, kReplaced };
std::string Cleaned(std::string_view text, LineEnds ends);

bool IsUtf8(std::string_view text);

// The whole text as one line of UTF-8. Control characters become as above, and so does each byte
// that is not part of a character ("caf\xe9"). A backslash is doubled, so that different texts stay
// different. The result survives JSON unchanged.
std::string AsUtf8(std::string_view text);

}  // namespace pando
