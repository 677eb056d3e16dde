#include "data/csv_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "common/text.h"

namespace pando {
namespace {

std::optional<double> ReadNumber(const std::string& text) {
  const std::optional<double> number = ParseNumber<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

Result<std::vector<size_t>> FindAll(const CsvFile& file, const std::vector<std::string>& names) {
  std::vector<size_t> places;
  for (const std::string& name : names) {
    PANDO_ASSIGN_OR_RETURN(size_t place, file.Find(name, "data.columns"));
    places.push_back(place);
  }
  return places;
}

// The first rows of a column that hold a number, and something else; line 0: none does.
struct Kinds {
  uint64_t number_line = 0;
  uint64_t word_line = 0;
  std::string word;
};

}  // namespace

Result<CsvFile> CsvFile::Open(const std::string& path) {
  CsvFile csv(path, std::ifstream(path, std::ios::binary));
  if (!csv.file_)
    return NotFound(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  std::string line;
  PANDO_ASSIGN_OR_RETURN(bool has_line, csv.ReadLine(&line));
  if (!has_line) return Corrupt(fmt::format("{}: is empty, expected a line of column names", path));
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
  PANDO_ASSIGN_OR_RETURN(csv.header_, csv.Split(line));
  return csv;
}

// Returns false at the end.
Result<bool> CsvFile::ReadLine(std::string* line) {
  if (!std::getline(file_, *line)) {
    if (!file_.bad()) return false;
    return Unavailable(
        fmt::format("cannot read {} after line {}: {}", path_, line_, std::strerror(errno)));
  }
  if (!line->empty() && line->back() == '\r') line->pop_back();
  ++line_;
  return true;
}

// "a,"b ""c"", d",e" -> a | b "c", d | e. Blanks around a field are not part of it.
Result<std::vector<std::string>> CsvFile::Split(const std::string& line) const {
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
  if (is_quoted) {
    return Corrupt(fmt::format(
        "{}: line {}: a quote is not closed; a field may not contain a line break", path_, line_));
  }
  for (std::string& field : fields) {
    const size_t first = std::min(field.find_first_not_of(" \t"), field.size());
    const size_t last = field.find_last_not_of(" \t");
    field = field.substr(first, last + 1 - first);
  }
  return fields;
}

Result<size_t> CsvFile::Find(const std::string& column, const char* key) const {
  const auto count = std::ranges::count(header_, column);
  if (count == 1) return static_cast<size_t>(std::ranges::find(header_, column) - header_.begin());
  if (count > 1)
    return Corrupt(fmt::format("{}: line 1: has {} columns '{}'", path_, count, column));
  const std::string question = DidYouMean(column, header_);
  return Corrupt(fmt::format("{}: line 1: has no column '{}', only {}{}{}; {} names columns", path_,
                             column, Joined(header_), question.empty() ? "" : "; ", question, key));
}

Result<bool> CsvFile::Next(std::vector<std::string>* fields) {
  std::string line;
  do {
    PANDO_ASSIGN_OR_RETURN(bool has_line, ReadLine(&line));
    if (!has_line) return false;
  } while (line.empty());
  PANDO_ASSIGN_OR_RETURN(*fields, Split(line));
  if (fields->size() == header_.size()) return true;
  return Corrupt(
      fmt::format("{}: line {}: {} fields, expected {} as in the header; the file may be cut off",
                  path_, line_, fields->size(), header_.size()));
}

Result<CsvRows> ReadCsv(const std::string& path, const CsvColumns& columns) {
  PANDO_ASSIGN_OR_RETURN(CsvFile file, CsvFile::Open(path));
  PANDO_ASSIGN_OR_RETURN(std::vector<size_t> numbers, FindAll(file, columns.numbers));
  PANDO_ASSIGN_OR_RETURN(std::vector<size_t> words, FindAll(file, columns.words));
  PANDO_ASSIGN_OR_RETURN(size_t label, file.Find(columns.label, "data.label"));
  CsvRows rows{.path = path, .words = std::vector<std::vector<std::string>>(words.size())};
  std::vector<std::string> fields;
  while (true) {
    PANDO_ASSIGN_OR_RETURN(bool has_row, file.Next(&fields));
    if (!has_row) break;
    for (size_t c = 0; c < numbers.size(); ++c) {
      const std::optional<double> number = ReadNumber(fields[numbers[c]]);
      if (!number) {
        return Corrupt(fmt::format("{}: line {}: column '{}' holds '{}', expected a number", path,
                                   file.line(), columns.numbers[c], fields[numbers[c]]));
      }
      rows.numbers.push_back(*number);
    }
    const auto take = [&](size_t place, std::vector<std::string>* to) {
      const std::string& word = fields[place];
      if (word.empty()) {
        return Corrupt(fmt::format("{}: line {}: column '{}' is empty", path, file.line(),
                                   file.header()[place]));
      }
      to->push_back(word);
      return Status();
    };
    for (size_t c = 0; c < words.size(); ++c) PANDO_RETURN_IF_ERROR(take(words[c], &rows.words[c]));
    PANDO_RETURN_IF_ERROR(take(label, &rows.labels));
    rows.lines.push_back(file.line());
  }
  if (rows.row_count() > 0) return rows;
  return Corrupt(fmt::format("{}: has no rows below its header", path));
}

Result<CsvColumns> SortColumns(const std::string& path, const std::vector<std::string>& names) {
  PANDO_ASSIGN_OR_RETURN(CsvFile file, CsvFile::Open(path));
  PANDO_ASSIGN_OR_RETURN(std::vector<size_t> places, FindAll(file, names));
  std::vector<Kinds> kinds(names.size());
  std::vector<std::string> fields;
  while (true) {
    PANDO_ASSIGN_OR_RETURN(bool has_row, file.Next(&fields));
    if (!has_row) break;
    for (size_t c = 0; c < places.size(); ++c) {
      const std::string& text = fields[places[c]];
      uint64_t& first = ReadNumber(text) ? kinds[c].number_line : kinds[c].word_line;
      if (first != 0) continue;
      first = file.line();
      if (&first == &kinds[c].word_line) kinds[c].word = text;
    }
  }
  CsvColumns sorted;
  for (size_t c = 0; c < names.size(); ++c) {
    if (kinds[c].number_line != 0 && kinds[c].word_line != 0) {
      return Corrupt(
          fmt::format("{}: line {}: column '{}' holds '{}', and a number in line {}; a column "
                      "holds numbers or categories: correct the file, or leave the column out "
                      "(data.columns)",
                      path, kinds[c].word_line, names[c], kinds[c].word, kinds[c].number_line));
    }
    (kinds[c].word_line != 0 ? sorted.words : sorted.numbers).push_back(names[c]);
  }
  return sorted;
}

}  // namespace pando
