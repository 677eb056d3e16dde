// Functions that remove invisible characters from a table's texts and write them as ASCII. The
// reader of CSV files calls them.
#pragma once

#include <string>
#include <string_view>

namespace pando {

// Removes blanks and Unicode's invisible characters (U+00A0, a byte order mark) at both ends.
std::string_view Trimmed(std::string_view text);

// Writes blanks, digits, points, signs and currencies as ASCII characters: U+00A0 becomes a blank,
// and the sign of the euro "$". Leaves out invisible characters, and keeps others.
std::string AsciiForm(std::string_view text);

}  // namespace pando
