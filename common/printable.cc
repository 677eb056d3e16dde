#include "common/printable.h"

#include <algorithm>
#include <cstdint>

namespace pando {
namespace {

std::string EscapedByte(unsigned char byte) {
  constexpr char kDigits[] = "0123456789abcdef";
  return {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
}

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

// Bytes of the character at the start of the text; 0 if there is none (Unicode 15, table 3-7), or
// if it is a control character of two bytes.
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

std::string Printable(std::string_view text) {
  constexpr std::string_view kRest = "...";
  std::string printable;
  for (char c : text.substr(0, kPrintableBytesMax + 1)) printable += Escaped(c);
  if (printable.size() <= kPrintableBytesMax) return printable;
  size_t end = kPrintableBytesMax - kRest.size();
  while (end > 0 && IsInsideCharacter(printable[end])) --end;
  return printable.substr(0, end).append(kRest);
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
