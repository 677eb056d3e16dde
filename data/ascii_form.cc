#include "data/ascii_form.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

namespace pando {
namespace {

constexpr char32_t kNoCharacter = 0xfffd;  // bytes that are not UTF-8
constexpr char kInvisible = '\0';

// Characters that people write instead of one of ASCII; other symbols become "~". In a range with
// is_row (digits, full-width characters) the results are consecutive.
struct Range {
  char32_t first;
  char32_t last;
  char ascii;
  bool is_row = false;
};
constexpr auto kRanges =
    std::to_array<Range>({{0x09, 0x0d, ' '},      {0x60, 0x60, '\''},     {0xa0, 0xa0, ' '},
                          {0xa2, 0xa5, '$'},      {0xab, 0xab, '"'},      {0xad, 0xad, 0},
                          {0xb1, 0xb1, '~'},      {0xb4, 0xb4, '\''},     {0xb7, 0xb7, '.'},
                          {0xbb, 0xbb, '"'},      {0x61c, 0x61c, 0},      {0x660, 0x669, '0', 1},
                          {0x66a, 0x66a, '%'},    {0x66b, 0x66c, ','},    {0x6f0, 0x6f9, '0', 1},
                          {0x966, 0x96f, '0', 1}, {0x9e6, 0x9ef, '0', 1}, {0x1680, 0x1680, ' '},
                          {0x180e, 0x180e, 0},    {0x2000, 0x200a, ' '},  {0x200b, 0x200f, 0},
                          {0x2010, 0x2015, '-'},  {0x2018, 0x201b, '\''}, {0x201c, 0x201f, '"'},
                          {0x2028, 0x2029, ' '},  {0x202a, 0x202e, 0},    {0x202f, 0x202f, ' '},
                          {0x2030, 0x2031, '%'},  {0x2032, 0x2033, '\''}, {0x205f, 0x205f, ' '},
                          {0x2060, 0x206f, 0},    {0x20a0, 0x20cf, '$'},  {0x2190, 0x2211, '~'},
                          {0x2212, 0x2212, '-'},  {0x2213, 0x23ff, '~'},  {0x2500, 0x27ff, '~'},
                          {0x3000, 0x3000, ' '},  {0xfeff, 0xfeff, 0},    {0xff01, 0xff5e, '!', 1},
                          {0xffe0, 0xffe6, '$'}});
static_assert(std::ranges::is_sorted(kRanges, {}, &Range::last));

struct Character {
  char32_t code = kNoCharacter;
  size_t size = 1;
};

// Decodes the text's first character. REQUIRES: the text is not empty.
Character Decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) return {byte(0)};
  const size_t size = byte(0) < 0xc0 ? 1 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : 4;
  if (size == 1 || size > text.size()) return {};
  char32_t code = byte(0) & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  return {code, size};
}

// Returns none if the character stays as it is.
std::optional<char> AsciiFor(char32_t code) {
  const auto range = std::ranges::lower_bound(kRanges, code, {}, &Range::last);
  if (range == kRanges.end() || code < range->first) return std::nullopt;
  return static_cast<char>(range->ascii + (range->is_row ? code - range->first : 0));
}

bool IsUnseen(std::string_view character) {
  const auto [code, size] = Decode(character);
  if (size != character.size()) return false;
  return code == ' ' || AsciiFor(code) == ' ' || AsciiFor(code) == kInvisible;
}

}  // namespace

std::string_view Trimmed(std::string_view text) {
  while (!text.empty()) {
    const size_t size = Decode(text).size;
    if (!IsUnseen(text.substr(0, size))) break;
    text.remove_prefix(size);
  }
  while (!text.empty()) {
    size_t first = text.size() - 1;
    while (first > 0 && (static_cast<uint8_t>(text[first]) & 0xc0) == 0x80) --first;
    if (!IsUnseen(text.substr(first))) break;
    text = text.substr(0, first);
  }
  return text;
}

std::string AsciiForm(std::string_view text) {
  std::string form;
  while (!text.empty()) {
    const auto [code, size] = Decode(text);
    const std::optional<char> ascii = AsciiFor(code);
    if (!ascii) form += text.substr(0, size);
    if (ascii && *ascii != kInvisible) form += *ascii;
    text.remove_prefix(size);
  }
  return form;
}

}  // namespace pando
