// A CSV file with a header, read by the names of its columns, plain or gzip-compressed. It is
// UTF-8. Fields may be quoted; lines end with LF or CRLF; empty lines are skipped. Errors name the
// file, the line, the column and what was expected; for a file of another kind, what it seems to be
// (csv_suspects.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "data/byte_stream.h"
#include "plan/job.h"

namespace pando {

class CsvFile {
 public:
  // Reads the header.  kNotFound, kCorrupt.
  static Result<CsvFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<std::string>& header() const { return header_; }
  // Where a column is. The error suggests a name that is like it, and the key that says it.
  Result<size_t> Find(const std::string& column, const char* key) const;
  // The next row's fields, as many as the header has. Returns false at the end.
  Result<bool> Next(std::vector<std::string>* fields);
  uint64_t line() const { return line_; }  // of the last row; the header's is 1

 private:
  CsvFile(std::string path, ByteStream bytes) : path_(std::move(path)), bytes_(std::move(bytes)) {}
  Result<bool> Fill();
  Result<bool> ReadLine(std::string* line);
  Status CheckHeader(const std::string& line);
  Result<std::vector<std::string>> Split(const std::string& line) const;

  std::string path_;
  ByteStream bytes_;
  std::string buffer_;
  size_t at_ = 0;                        // of the next line in the buffer
  std::optional<std::string> next_row_;  // was looked at already
  uint64_t line_ = 0;
  std::vector<std::string> header_;
};

struct CsvColumns {  // by name
  std::vector<std::string> numbers;
  std::vector<std::string> words;
  std::string label;  // words, too; empty: rows without labels are read
  MissingValues missing = MissingValues::kError;
};

// Squares of such numbers, and sums of many squares, are doubles.
inline constexpr double kCsvNumberMax = 1e150;

struct CsvRows {
  std::string path;
  std::vector<double> numbers;  // [row, number column], up to kCsvNumberMax; missing: not a number
  std::vector<std::vector<std::string>> words;  // [word column, row]; missing: empty
  std::vector<std::string> labels;
  std::vector<uint64_t> lines;  // of each row in the file
  size_t row_count() const { return lines.size(); }
};
// Values are missing only if columns.missing allows it; labels never are.
Result<CsvRows> ReadCsv(const std::string& path, const CsvColumns& columns);

// Which of these columns hold numbers, in all rows that do not miss the value, and which hold
// words. kCorrupt where one has both, or words that all look like numbers.
Result<CsvColumns> SortColumns(const std::string& path, const std::vector<std::string>& names);

}  // namespace pando
