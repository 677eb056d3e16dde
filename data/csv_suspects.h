// What a CSV file probably is where it is not what CsvFile expects: another encoding, another
// separator, another way to write numbers. Called by csv_file.cc. Each function returns a clause
// for an error, or an empty text if it suspects nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pando {

// UTF-16, and lines that end with CR alone. `start`: the file's first line, up to an LF.
std::string SuspectEncoding(std::string_view start);
// Tabs, semicolons, bars or blanks instead of commas. `row`: the first one; empty if there is none.
std::string SuspectSeparator(std::string_view header, std::string_view row);
// A file without a header: numbers where the names of columns are expected. Whole numbers beside
// other names may be years, unless a column that the job names is unknown.
enum class HeaderNames { kMayFit, kOneIsUnknown };
std::string SuspectHeader(const std::vector<std::string>& names, HeaderNames known);
// A number that is not written as one: "1,475", "1.234,56", "12%", "5 EUR" with the sign of the
// euro, "1.5D-3", "(1.5)", "1.5-", and characters that are not ASCII.
std::string SuspectNumber(std::string_view text);
// "1.5", "-1,475.5", "1 475", "1,5".
bool IsNumberInAnyNotation(std::string_view text);

// "", "NA", "nan", "null" and the like: pandas' list, and "?" (UCI's).
bool IsMissing(std::string_view text);

}  // namespace pando
