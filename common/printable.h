// Printable: text that somebody else wrote, made fit for a line of an error.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pando {

// Control characters as "\n", "\t" or "\x1b"; of more than so many bytes the first, and "...".
// UTF-8 is cut between characters.
inline constexpr size_t kPrintableBytesMax = 80;
std::string Printable(std::string_view text);

// Whole, as one line of UTF-8: control characters as above, and so each byte that is not part of a
// character ("caf\xe9"); a backslash is doubled, so that texts that differ stay so. What goes
// through JSON comes back equal.
std::string AsUtf8(std::string_view text);

}  // namespace pando
