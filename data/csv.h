// Reader of CSV files with a header. It reads chosen columns, found by name: numbers, and one
// column of words. Called by table_set.cc. Errors name the file, the line, the column and what was
// expected. Fields may be quoted; lines end with LF or CRLF.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

namespace pando {

struct CsvColumns {
  std::vector<std::string> numbers;
  std::string word;
};

struct CsvRows {
  std::string path;
  std::vector<double> numbers;  // [row, column], finite
  std::vector<std::string> words;
  std::vector<uint64_t> lines;  // line of each row in the file; the header is line 1
  size_t row_count() const { return words.size(); }
};

Result<CsvRows> ReadCsv(const std::string& path, const CsvColumns& columns);

}  // namespace pando
