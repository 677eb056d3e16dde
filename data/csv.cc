#include "data/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "common/text.h"

namespace pando {
namespace {

// "a,"b ""c"", d",e" -> a | b "c", d | e. Blanks around a field are not part of it.
std::vector<std::string> SplitLine(const std::string& line) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && is_quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (c == '"') {
      is_quoted = !is_quoted;
    } else if (c == ',' && !is_quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  for (std::string& field : fields) {
    const size_t first = std::min(field.find_first_not_of(" \t"), field.size());
    const size_t last = field.find_last_not_of(" \t");
    field = field.substr(first, last + 1 - first);
  }
  return fields;
}

class CsvReader {
 public:
  CsvReader(const std::string& path, const CsvColumns& columns) : path_(path), columns_(columns) {}

  Result<CsvRows> Read() {
    std::ifstream file(path_, std::ios::binary);
    if (!file) {
      return NotFound(fmt::format("{}: cannot be opened: {}", path_, std::strerror(errno)));
    }
    if (!NextLine(file)) {
      return Corrupt(fmt::format("{}: is empty, expected a line of column names", path_));
    }
    if (Status s = TakeHeader(); !s.ok()) return s;
    rows_.path = path_;
    while (NextLine(file)) {
      if (line_.empty()) continue;
      if (Status s = TakeRow(); !s.ok()) return s;
    }
    if (rows_.row_count() > 0) return std::move(rows_);
    return Corrupt(fmt::format("{}: has no rows below its header", path_));
  }

 private:
  bool NextLine(std::ifstream& file) {
    if (!std::getline(file, line_)) return false;
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    ++line_number_;
    return true;
  }

  Status TakeHeader() {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (line_.starts_with(kByteOrderMark)) line_.erase(0, kByteOrderMark.size());
    header_ = SplitLine(line_);
    std::vector<std::string> wanted = columns_.numbers;
    wanted.push_back(columns_.word);
    for (const std::string& name : wanted) {
      const auto at = std::find(header_.begin(), header_.end(), name);
      if (at == header_.end()) return MissingColumn(name);
      places_.push_back(static_cast<size_t>(at - header_.begin()));
    }
    return Status();
  }

  Status MissingColumn(const std::string& name) const {
    const std::string question = DidYouMean(name, header_);
    return Corrupt(
        fmt::format("{}: line 1: has no column '{}', only {}{}{}; name the columns with "
                    "data.columns",
                    path_, name, Joined(header_), question.empty() ? "" : "; ", question));
  }

  Status TakeRow() {
    const std::vector<std::string> fields = SplitLine(line_);
    if (fields.size() != header_.size()) {
      return Corrupt(
          fmt::format("{}: line {}: {} fields, expected {} as in the header; the file "
                      "may be cut off",
                      path_, line_number_, fields.size(), header_.size()));
    }
    for (size_t c = 0; c < columns_.numbers.size(); ++c) {
      const std::string& text = fields[places_[c]];
      const std::optional<double> number = ParseNumber<double>(text);
      if (!number || !std::isfinite(*number)) {
        return Corrupt(fmt::format("{}: line {}: column '{}' holds '{}', expected a number", path_,
                                   line_number_, columns_.numbers[c], text));
      }
      rows_.numbers.push_back(*number);
    }
    const std::string& word = fields[places_.back()];
    if (word.empty()) {
      return Corrupt(
          fmt::format("{}: line {}: column '{}' is empty", path_, line_number_, columns_.word));
    }
    rows_.words.push_back(word);
    rows_.lines.push_back(line_number_);
    return Status();
  }

  const std::string path_;
  const CsvColumns& columns_;
  std::string line_;
  uint64_t line_number_ = 0;
  std::vector<std::string> header_;
  std::vector<size_t> places_;  // of the wanted columns; the last one has the words
  CsvRows rows_;
};

}  // namespace

Result<CsvRows> ReadCsv(const std::string& path, const CsvColumns& columns) {
  return CsvReader(path, columns).Read();
}

}  // namespace pando
