// Texts of a table without the characters that people do not see, and as ASCII. Called by the
// reader of CSV files.
#pragma once

#include <string>
#include <string_view>

namespace pando {

// Without blanks and invisible characters of Unicode at its ends: U+00A0, a byte order mark.
std::string_view Trimmed(std::string_view text);

// Blanks, digits, points, signs and currencies become ASCII characters: U+00A0 a blank, the sign of
// the euro "$". Invisible characters are left out. Others stay.
std::string AsciiForm(std::string_view text);

}  // namespace pando
