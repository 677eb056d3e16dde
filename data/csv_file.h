// CsvFile reads a CSV file, plain or gzip-compressed, by the names of its columns. The file is
// UTF-8 and has a header. Fields may be quoted; lines end with LF or CRLF; empty lines are skipped.
// Errors name the file, the line, the column and what was expected. For another kind of file they
// name its probable kind (csv_suspects.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "data/byte_stream.h"
#include "plan/job.h"

namespace pando {

class CsvFile {
 public:
  // Opens the file and reads the header. kNotFound: it cannot be opened. kCorrupt: it is not CSV.
  static Result<CsvFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<std::string>& header() const { return header_; }
  // Returns a column's index. The error suggests a similar name, and the key that names it.
  Result<size_t> Find(const std::string& column, const char* key) const;
  // Reads the next row's fields, as many as the header has. Returns false at the end.
  Result<bool> Next(std::vector<std::string>* fields);
  uint64_t line() const { return line_; }  // the last row's; the header's is 1

 private:
  CsvFile(std::string path, ByteStream bytes) : path_(std::move(path)), bytes_(std::move(bytes)) {}
  Result<bool> Fill();
  Result<bool> ReadLine(std::string* line);
  Status CheckHeader(const std::string& line);
  Result<std::vector<std::string>> Split(const std::string& line) const;

  std::string path_;
  ByteStream bytes_;
  std::string buffer_;
  size_t at_ = 0;                        // the next line's place in the buffer
  std::optional<std::string> next_row_;  // a row that was read ahead
  uint64_t line_ = 0;
  std::vector<std::string> header_;
};

struct CsvColumns {  // the names of columns
  std::vector<std::string> numbers;
  std::vector<std::string> words;
  std::string label;  // a column of words; empty: rows have no labels
  MissingValues missing = MissingValues::kError;
};

// The largest number. Squares of such numbers, and sums of many squares, stay within doubles.
inline constexpr double kCsvNumberMax = 1e150;

struct CsvRows {
  std::string path;
  std::vector<double> numbers;  // [row, number column], up to kCsvNumberMax; missing: NaN
  std::vector<std::vector<std::string>> words;  // [word column, row]; missing: empty
  std::vector<std::string> labels;
  std::vector<uint64_t> lines;  // each row's line in the file
  size_t row_count() const { return lines.size(); }
};
// Reads these columns. Values may be missing if columns.missing allows it, labels never.
Result<CsvRows> ReadCsv(const std::string& path, const CsvColumns& columns);

// Finds which of these columns have numbers, in all rows that have a value, and which have words.
// kCorrupt: one has both, or words that all look like numbers.
Result<CsvColumns> SortColumns(const std::string& path, const std::vector<std::string>& names);

}  // namespace pando
