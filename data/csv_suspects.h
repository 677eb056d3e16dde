// Guesses what a CSV file is if it is not what CsvFile expects: another encoding, another
// separator, another notation of numbers. csv_file.cc calls it. Each function returns a clause for
// an error, or "" if it suspects nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pando {

// Suspects UTF-16, and lines that end with CR alone. `start` is the first line, up to an LF.
std::string SuspectEncoding(std::string_view start);
// Suspects tabs, semicolons, bars or blanks instead of commas. `row` is the first one or empty.
std::string SuspectSeparator(std::string_view header, std::string_view row);
// Suspects a file without a header, if it has numbers instead of names of columns. Whole numbers
// beside other names may be years, unless a column that the job names is unknown.
enum class HeaderNames { kMayFit, kOneIsUnknown };
std::string SuspectHeader(const std::vector<std::string>& names, HeaderNames known);
// Suspects a number in another notation: "1,475", "1.234,56", "12%", "5 EUR" with the sign of the
// euro, "1.5D-3", "(1.5)", "1.5-", and characters that are not ASCII.
std::string SuspectNumber(std::string_view text);
// True for "1.5", "-1,475.5", "1 475", "1,5".
bool IsNumberInAnyNotation(std::string_view text);

// True for "", "NA", "nan", "null" and so on: pandas' list, and "?" (UCI's).
bool IsMissing(std::string_view text);

}  // namespace pando
