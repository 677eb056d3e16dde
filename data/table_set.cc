// Rows of numbers, each with a class, in memory: the Sloan Digital Sky Survey's catalogue (`sdss`).
//
// One CSV file is split here: every fifth row of a fixed shuffle is a test sample for any seed of
// the job. A folder with train.csv and test.csv is split already. Classes are those of the training
// rows, sorted bytewise. Columns are standardised with the training rows' mean and deviation.
// Identifiers of an observation (objid, specobjid, plate, mjd, fiberid, run, ...) are omitted by
// default: a plate has spectra of one class, so they leak the class.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/hash.h"
#include "common/status.h"
#include "common/text.h"
#include "data/kinds.h"
#include "data/permutation.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kTestShare = 5;  // one row in five is held out
constexpr uint64_t kSplitSeed = 0;
constexpr const char* kClassColumn = "class";
// Five magnitudes and the redshift, the same in DR14 and DR17.
constexpr auto kColumns = std::to_array({"u", "g", "r", "i", "z", "redshift"});

// ---- a CSV file --------------------------------------------------------------------------------

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

// Reads chosen columns of a CSV file with a header, found by name: numbers, and one column of
// words. Errors name the file, the line, the column and what was expected. Fields may be quoted;
// lines end with LF or CRLF.
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
    PANDO_RETURN_IF_ERROR(TakeHeader());
    rows_.path = path_;
    while (NextLine(file)) {
      if (line_.empty()) continue;
      PANDO_RETURN_IF_ERROR(TakeRow());
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

// ---- the tables --------------------------------------------------------------------------------

struct TablePaths {
  std::string train;
  std::string test;  // empty: split `train`
};

std::vector<std::string> CsvFilesIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_regular_file(ignored) && entry.path().extension() == ".csv")
      paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Result<TablePaths> FindTables(const std::string& path) {
  const char* what = "data.path (--data) must be a CSV file, or the folder of one";
  std::error_code ignored;
  if (path.empty()) return InvalidArgument(fmt::format("no file given for sdss: {}", what));
  if (fs::is_regular_file(path, ignored)) return TablePaths{path, ""};
  if (!fs::is_directory(path, ignored))
    return NotFound(fmt::format("{}: no such file or folder; {}", path, what));
  const TablePaths two{path + "/train.csv", path + "/test.csv"};
  if (fs::is_regular_file(two.train, ignored) && fs::is_regular_file(two.test, ignored)) return two;
  const std::vector<std::string> files = CsvFilesIn(path);
  if (files.size() == 1) return TablePaths{files[0], ""};
  if (files.empty()) return NotFound(fmt::format("{}: holds no .csv file; {}", path, what));
  return InvalidArgument(
      fmt::format("{}: holds {} .csv files, {} among them; give the file itself as data.path "
                  "(--data)",
                  path, files.size(), files[0]));
}

struct SplitRows {
  CsvRows train;
  CsvRows test;
};

void AppendRow(const CsvRows& from, size_t row, CsvRows* to) {
  const size_t columns = from.numbers.size() / from.row_count();
  const auto first = from.numbers.begin() + static_cast<std::ptrdiff_t>(row * columns);
  to->numbers.insert(to->numbers.end(), first, first + static_cast<std::ptrdiff_t>(columns));
  to->words.push_back(from.words[row]);
  to->lines.push_back(from.lines[row]);
}

SplitRows SplitTable(const CsvRows& whole) {
  SplitRows result;
  result.train.path = result.test.path = whole.path;
  const Permutation shuffle(whole.row_count(), kSplitSeed, 0);
  for (size_t row = 0; row < whole.row_count(); ++row) {
    const bool is_test = shuffle.At(row) % kTestShare == 0;
    AppendRow(whole, row, is_test ? &result.test : &result.train);
  }
  return result;
}

Result<SplitRows> ReadTables(const TablePaths& paths, const CsvColumns& columns) {
  PANDO_ASSIGN_OR_RETURN(CsvRows train, CsvReader(paths.train, columns).Read());
  if (paths.test.empty()) return SplitTable(train);
  PANDO_ASSIGN_OR_RETURN(CsvRows test, CsvReader(paths.test, columns).Read());
  return SplitRows{std::move(train), std::move(test)};
}

Result<std::vector<std::string>> ListClasses(const CsvRows& train) {
  std::vector<std::string> names = train.words;
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (names.size() >= 2) return names;
  return Corrupt(
      fmt::format("{}: all training rows are of one class, {}; a classifier needs two or more",
                  train.path, names.empty() ? "none" : names[0]));
}

struct Standard {  // by column
  std::vector<double> mean;
  std::vector<double> deviation;
};

// Sums in the order of rows. A column without variance is left at 0.
Standard FitStandard(const CsvRows& rows, size_t columns) {
  Standard fit{std::vector<double>(columns), std::vector<double>(columns)};
  const auto count = static_cast<double>(rows.row_count());
  for (size_t i = 0; i < rows.numbers.size(); ++i) fit.mean[i % columns] += rows.numbers[i];
  for (double& mean : fit.mean) mean /= count;
  for (size_t i = 0; i < rows.numbers.size(); ++i) {
    const double away = rows.numbers[i] - fit.mean[i % columns];
    fit.deviation[i % columns] += away * away;
  }
  for (double& deviation : fit.deviation) {
    deviation = deviation > 0 ? std::sqrt(deviation / count) : 1.0;
  }
  return fit;
}

struct Rows {                 // one split
  std::vector<float> values;  // [row, column], standardised
  std::vector<int32_t> labels;
};

Result<Rows> MakeRows(const CsvRows& rows, const std::vector<std::string>& names,
                      const Standard& fit) {
  Rows result;
  for (size_t row = 0; row < rows.row_count(); ++row) {
    const auto at = std::lower_bound(names.begin(), names.end(), rows.words[row]);
    if (at == names.end() || *at != rows.words[row]) {
      return Corrupt(
          fmt::format("{}: line {}: unknown class '{}' in the test split; the training "
                      "rows know {}",
                      rows.path, rows.lines[row], rows.words[row], Joined(names)));
    }
    result.labels.push_back(static_cast<int32_t>(at - names.begin()));
  }
  const size_t columns = fit.mean.size();
  for (size_t i = 0; i < rows.numbers.size(); ++i) {
    const size_t c = i % columns;
    result.values.push_back(static_cast<float>((rows.numbers[i] - fit.mean[c]) / fit.deviation[c]));
  }
  return result;
}

// Before standardisation.
std::vector<std::string> MomentsText(const CsvColumns& columns, const Standard& fit) {
  std::vector<std::string> lines;
  for (size_t c = 0; c < columns.numbers.size(); ++c) {
    lines.push_back(fmt::format("column {}: mean {:.6g}, deviation {:.6g} (of the training rows)",
                                columns.numbers[c], fit.mean[c], fit.deviation[c]));
  }
  return lines;
}

class TableSet final : public DataSet {
 public:
  // REQUIRES: each split has `columns` values for each label, and labels below the class count.
  TableSet(uint32_t columns, std::vector<std::string> class_names, Rows train, Rows test,
           std::vector<std::string> remarks)
      : columns_(columns),
        class_names_(std::move(class_names)),
        train_(std::move(train)),
        test_(std::move(test)),
        remarks_(std::move(remarks)) {
    for (const Rows* split : {&train_, &test_}) {
      PANDO_CHECK(split->values.size() == split->labels.size() * columns_);
    }
  }

  SampleShape shape() const override { return {1, 1, columns_}; }
  uint32_t class_count() const override { return static_cast<uint32_t>(class_names_.size()); }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::vector<std::string> remarks() const override { return remarks_; }
  uint64_t sample_count(Split split) const override { return rows(split).labels.size(); }
  uint64_t fingerprint() const override { return fingerprint_; }
  Status Read(Split split, std::span<const uint64_t> indices, Batch* batch) const override {
    const Rows& source = rows(split);
    batch->shape = shape();
    batch->normalisation = nullptr;
    batch->bytes.clear();
    batch->values.resize(indices.size() * columns_);
    batch->labels.resize(indices.size());
    for (size_t i = 0; i < indices.size(); ++i) {
      PANDO_CHECK(indices[i] < source.labels.size());
      std::copy_n(&source.values[indices[i] * columns_], columns_, &batch->values[i * columns_]);
      batch->labels[i] = source.labels[indices[i]];
    }
    return Status();
  }

 private:
  const Rows& rows(Split split) const { return split == Split::kTrain ? train_ : test_; }

  // P38. Tables are small, so every value is hashed.
  uint64_t MakeFingerprint() const {
    const std::array<uint64_t, 3> sizes{columns_, train_.labels.size(), test_.labels.size()};
    uint64_t hash = Hash64(std::as_bytes(std::span(sizes)));
    for (const std::string& name : class_names_) hash = Hash64(name, hash);
    for (const Rows* split : {&train_, &test_}) {
      hash = Hash64(std::as_bytes(std::span(split->values)), hash);
      hash = Hash64(std::as_bytes(std::span(split->labels)), hash);
    }
    return hash;
  }

  const uint32_t columns_;
  const std::vector<std::string> class_names_;
  const Rows train_;
  const Rows test_;
  const std::vector<std::string> remarks_;
  const uint64_t fingerprint_ = MakeFingerprint();
};

}  // namespace

OpenedDataSet OpenSdss(const Job& job, const DataWarning&) {
  PANDO_ASSIGN_OR_RETURN(TablePaths paths, FindTables(job.data_path));
  CsvColumns columns{job.columns, kClassColumn};
  if (job.columns.empty()) columns.numbers.assign(kColumns.begin(), kColumns.end());
  PANDO_ASSIGN_OR_RETURN(SplitRows rows, ReadTables(paths, columns));
  PANDO_ASSIGN_OR_RETURN(std::vector<std::string> names, ListClasses(rows.train));
  const Standard fit = FitStandard(rows.train, columns.numbers.size());
  PANDO_ASSIGN_OR_RETURN(Rows train, MakeRows(rows.train, names, fit));
  PANDO_ASSIGN_OR_RETURN(Rows test, MakeRows(rows.test, names, fit));
  return OpenedDataSet(std::make_unique<TableSet>(static_cast<uint32_t>(columns.numbers.size()),
                                                  std::move(names), std::move(train),
                                                  std::move(test), MomentsText(columns, fit)));
}

bool HoldsTable(const std::string& folder) {
  std::error_code ignored;
  return fs::is_directory(folder, ignored) && FindTables(folder).ok();
}

}  // namespace pando
