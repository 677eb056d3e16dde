#include "common/text.h"

#include <fmt/core.h>

#include <numeric>
#include <utility>

namespace pando {
namespace {

constexpr size_t kNamesMax = 3;
constexpr size_t kWordBytesMax = 256;  // longer words have no near names
constexpr size_t kPartLengthMin = 3;   // shorter parts occur in too many names

std::string Fold(std::string_view text) {
  std::string folded(text);
  for (char& c : folded) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_') c = '-';
  }
  return folded;
}

bool IsNear(const std::string& typed, const std::string& name, size_t distance) {
  if (distance <= std::max<size_t>(1, typed.size() / 3)) return true;
  return typed.size() >= kPartLengthMin && name.find(typed) != std::string::npos;
}

std::string EscapedByte(unsigned char byte) { return fmt::format("\\x{:02x}", byte); }

// Escapes a control character and returns others unchanged.
std::string Escaped(char c) {
  constexpr unsigned char kFirstPrintable = 0x20, kDelete = 0x7f;
  const auto byte = static_cast<unsigned char>(c);
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  if (byte >= kFirstPrintable && byte != kDelete) return {c};
  return EscapedByte(byte);
}

bool IsInsideCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Returns the bytes of the character at the start of the text (Unicode 15, table 3-7). Returns 0 if
// there is none, or if it is a control character of two bytes.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) -> uint8_t {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : 0;
  };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const bool may_be_control = first == 0xc2;  // U+0080 to U+009F
  const uint8_t lowest = first == 0xe0 || may_be_control ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const uint8_t highest = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < lowest || byte(1) > highest) return 0;
  const size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (size_t i = 2; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return size;
}

}  // namespace

std::vector<std::string_view> SplitText(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t at = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, at));
    text.remove_prefix(std::min(at + 1, text.size()));
  }
  return parts;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string Joined(const std::vector<uint64_t>& numbers) {
  std::vector<std::string> words;
  for (uint64_t number : numbers) words.push_back(std::to_string(number));
  return Joined(words);
}

std::string BytesText(uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

size_t EditDistance(std::string_view a_text, std::string_view b_text) {
  const std::string a = Fold(a_text);
  const std::string b = Fold(b_text);
  // Row i has the distances between a's first i letters and every prefix of b.
  std::vector<size_t> row(b.size() + 1), above(b.size() + 1), above_that(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(above_that, above);
    std::swap(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substituted});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], above_that[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::vector<std::string> NearestNames(std::string_view typed, std::span<const std::string> known) {
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& name : known) {
    // The time grows with the product of both sizes.
    if (std::max(typed.size(), name.size()) > kWordBytesMax) continue;
    const size_t distance = EditDistance(typed, name);
    if (IsNear(Fold(typed), Fold(name), distance)) near.emplace_back(distance, name);
  }
  std::ranges::stable_sort(near, {}, &std::pair<size_t, std::string>::first);
  near.resize(std::min(near.size(), kNamesMax));
  std::vector<std::string> names;
  for (auto& [distance, name] : near) names.push_back(std::move(name));
  return names;
}

std::string DidYouMean(std::string_view typed, std::span<const std::string> known) {
  const std::vector<std::string> names = NearestNames(typed, known);
  if (names.empty()) return "";
  std::string question = "did you mean '" + names[0] + "'";
  for (size_t i = 1; i < names.size(); ++i) {
    question += (i + 1 == names.size() ? " or '" : ", '") + names[i] + "'";
  }
  return question + "?";
}

std::string Printable(std::string_view text) {
  constexpr std::string_view kRest = "...";
  std::string printable;
  for (char c : text.substr(0, kPrintableBytesMax + 1)) printable += Escaped(c);
  if (printable.size() <= kPrintableBytesMax) return printable;
  size_t end = kPrintableBytesMax - kRest.size();
  while (end > 0 && IsInsideCharacter(printable[end])) --end;
  return printable.substr(0, end).append(kRest);
}

namespace {

bool IsC1(char c) { return static_cast<uint8_t>(c) >= 0x80 && static_cast<uint8_t>(c) < 0xa0; }

// Returns whether a terminal could obey `part`: a character, or a byte that belongs to none.
bool IsCommand(std::string_view part) {
  const auto first = static_cast<uint8_t>(part[0]);
  if (part.size() == 1) return first < 0x20 || first == 0x7f || IsC1(part[0]);
  if (part.size() == 2) return first == 0xc2 && IsC1(part[1]);
  return (part >= "\u202a" && part <= "\u202e") || (part >= "\u2066" && part <= "\u2069");
}

}  // namespace

std::string Cleaned(std::string_view text, LineEnds ends) {
  std::string cleaned;
  cleaned.reserve(text.size());
  while (!text.empty()) {
    const bool is_c1 = text.size() > 1 && text[0] == '\xc2' && IsC1(text[1]);
    const std::string_view part =
        text.substr(0, is_c1 ? 2 : std::max<size_t>(CharacterBytes(text), 1));
    const bool is_end = ends == LineEnds::kKept && (part == "\n" || part == "\t");
    cleaned += !is_end && IsCommand(part) ? "?" : part;
    text.remove_prefix(part.size());
  }
  return cleaned;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string AsUtf8(std::string_view text) {
  std::string utf8;
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    if (size == 0) {
      utf8 += EscapedByte(static_cast<unsigned char>(text[0]));
    } else if (text[0] == '\\') {
      utf8 += "\\\\";
    } else if (size == 1) {
      utf8 += Escaped(text[0]);
    } else {
      utf8 += text.substr(0, size);
    }
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return utf8;
}

}  // namespace pando
