// Printable: text from outside, made fit for a line of an error.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pando {

// Control characters become "\n", "\t" or "\x1b". A text over kPrintableBytesMax is cut and gets
// "...". UTF-8 is cut between characters.
inline constexpr size_t kPrintableBytesMax = 80;
std::string Printable(std::string_view text);

// The whole text as one line of UTF-8. Control characters become as above, and so does each byte
// that is not part of a character ("caf\xe9"). A backslash is doubled, so that different texts stay
// different. The result survives JSON unchanged.
std::string AsUtf8(std::string_view text);

}  // namespace pando
