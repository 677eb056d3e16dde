// A data set of rows of numbers and categories, each with a class, in memory: CSV files (`csv`),
// including the Sloan Digital Sky Survey's catalogue (`sdss`).
//
// A single file is split here: data.test_share of the rows, by a fixed shuffle, are test samples
// for any seed. A folder with train.csv and test.csv is split already. The training rows decide the
// classes, the categories, and the mean and deviation that standardise numbers in double. A
// category becomes one input per value, 0 or 1. A missing value is an error, the column's mean, or
// a category. Ids in sdss (objid, plate, ...) are omitted: a plate has spectra of one class.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/cpu/denormals_kept.h"
#include "common/hash.h"
#include "common/result.h"
#include "common/text.h"
#include "data/csv_file.h"
#include "data/kinds.h"
#include "data/permutation.h"
#include "data/table_files.h"
#include "data/unlabelled.h"

namespace pando {
namespace {

constexpr uint64_t kSplitSeed = 0;
constexpr size_t kCategoriesMax = 1000;
constexpr size_t kClassesMax = 10'000;
constexpr size_t kBytesMax = size_t{64} << 30;  // for a split's inputs
constexpr const char* kSdssLabel = "class";
// Five magnitudes and the redshift, equal in DR14 and DR17.
constexpr auto kSdssColumns = std::to_array({"u", "g", "r", "i", "z", "redshift"});

// ---- reading and splitting ----------------------------------------------------------------------

struct SplitRows {
  CsvRows train;
  CsvRows test;
};

void AppendRow(const CsvRows& from, size_t row, CsvRows* to) {
  const size_t columns = from.numbers.size() / from.row_count();
  const auto first = from.numbers.begin() + static_cast<std::ptrdiff_t>(row * columns);
  to->numbers.insert(to->numbers.end(), first, first + static_cast<std::ptrdiff_t>(columns));
  to->words.resize(from.words.size());
  for (size_t c = 0; c < from.words.size(); ++c) to->words[c].push_back(from.words[c][row]);
  to->labels.push_back(from.labels[row]);
  to->lines.push_back(from.lines[row]);
}

SplitRows SplitTable(const CsvRows& whole, double test_share) {
  constexpr uint64_t kWhole = 1'000'000;
  const auto share = static_cast<uint64_t>(std::llround(test_share * kWhole));
  SplitRows result;
  result.train.path = result.test.path = whole.path;
  const Permutation shuffle(whole.row_count(), kSplitSeed, 0);
  for (size_t row = 0; row < whole.row_count(); ++row) {
    const bool is_test = shuffle.At(row) * share % kWhole < share;
    AppendRow(whole, row, is_test ? &result.test : &result.train);
  }
  return result;
}

Result<SplitRows> ReadTables(const TablePaths& paths, const CsvColumns& columns,
                             double test_share) {
  PANDO_ASSIGN_OR_RETURN(CsvRows train, ReadCsv(paths.train, columns));
  if (paths.test.empty()) return SplitTable(train, test_share);
  PANDO_ASSIGN_OR_RETURN(CsvRows test, ReadCsv(paths.test, columns));
  return SplitRows{std::move(train), std::move(test)};
}

// ---- how rows become samples -------------------------------------------------------------------

// Lists each value once, sorted by number if all are numbers, otherwise bytewise.
std::vector<std::string> ListValues(std::vector<std::string> words) {
  std::ranges::sort(words);
  words.erase(std::unique(words.begin(), words.end()), words.end());
  const auto number = [](const std::string& word) { return ParseNumber<uint64_t>(word); };
  const auto is_number = [&](const std::string& word) { return number(word).has_value(); };
  if (std::ranges::all_of(words, is_number)) std::ranges::stable_sort(words, {}, number);
  return words;
}

Result<std::vector<std::string>> ListClasses(const CsvRows& train) {
  std::vector<std::string> names = ListValues(train.labels);
  if (names.size() > kClassesMax) {
    return Corrupt(
        fmt::format("{}: the label has {} different values, and a classifier has at most {} "
                    "classes; is it a number to be predicted? Pando trains classifiers alone",
                    train.path, names.size(), kClassesMax));
  }
  if (names.size() >= 2) return names;
  return Corrupt(
      fmt::format("{}: all training rows are of one class, {}; a classifier needs two or more",
                  train.path, names.empty() ? "none" : names[0]));
}

// A column of the table as the network gets it.
struct Feature {
  std::string name;
  size_t place = 0;  // among the columns of numbers, or of words
  double mean = 0;   // for numbers, in the training rows
  double deviation = 1;
  bool is_constant = false;             // except for rounding: its input is 0
  uint64_t missing_count = 0;           // for numbers, in the training rows
  bool has_missing_input = false;       // a second input: 1 if the number is missing
  std::vector<std::string> categories;  // for words; empty for numbers

  size_t input_count() const {
    return categories.empty() ? 1 + size_t{has_missing_input} : categories.size();
  }
  double exported_deviation() const {
    return is_constant ? std::numeric_limits<double>::max() : deviation;
  }
};

std::vector<double> NumbersIn(const CsvRows& rows, size_t place) {
  std::vector<double> numbers;
  const size_t columns = rows.numbers.size() / rows.row_count();
  for (size_t i = place; i < rows.numbers.size(); i += columns) {
    if (!std::isnan(rows.numbers[i])) numbers.push_back(rows.numbers[i]);
  }
  return numbers;
}

// Scales numbers by a power of two, which is exact: squares of small numbers would become 0.
double Deviation(const std::vector<double>& numbers, double mean) {
  double largest = 0;
  for (const double number : numbers) largest = std::max(largest, std::abs(number - mean));
  if (largest == 0) return 0;
  const int exponent = std::ilogb(largest);
  double squares = 0;
  for (const double number : numbers) {
    const double away = std::scalbn(number - mean, -exponent);
    squares += away * away;
  }
  return std::scalbn(std::sqrt(squares / static_cast<double>(numbers.size())), exponent);
}

// Fits the mean and deviation of a column. Sums in the order of rows.
Status FitNumbers(const CsvRows& rows, MissingValues missing, Feature* feature) {
  constexpr double kSmallShare = 1e-6;      // below it the mean's own rounding counts
  constexpr double kConstantShare = 1e-12;  // doubles of equal texts differ by less
  const std::vector<double> numbers = NumbersIn(rows, feature->place);
  feature->missing_count = rows.row_count() - numbers.size();
  feature->has_missing_input = missing == MissingValues::kCategory && feature->missing_count > 0;
  if (numbers.empty()) {
    return Corrupt(
        fmt::format("{}: column '{}' holds no number in any training row; leave it out "
                    "(data.columns)",
                    rows.path, feature->name));
  }
  const auto count = static_cast<double>(numbers.size());
  double& mean = feature->mean;
  for (const double number : numbers) mean += number;
  mean /= count;
  feature->deviation = Deviation(numbers, mean);
  if (feature->deviation < kSmallShare * std::abs(mean)) {
    double away = 0;
    for (const double number : numbers) away += number - mean;
    mean += away / count;
    feature->deviation = Deviation(numbers, mean);
  }
  feature->is_constant = feature->deviation <= kConstantShare * std::abs(mean);
  return Status();
}

Status FitCategories(const CsvRows& rows, Feature* feature) {
  feature->categories = ListValues(rows.words[feature->place]);
  if (feature->categories.size() <= kCategoriesMax) return Status();
  return Corrupt(
      fmt::format("{}: column '{}' holds {} different texts, and a category has at most {}; leave "
                  "the column out (data.columns)",
                  rows.path, feature->name, feature->categories.size(), kCategoriesMax));
}

// Returns the features in the order of `names`.
Result<std::vector<Feature>> FitFeatures(const CsvRows& train, const CsvColumns& columns,
                                         const std::vector<std::string>& names) {
  std::vector<Feature> features;
  for (const std::string& name : names) {
    Feature& feature = features.emplace_back(Feature{.name = name});
    const auto number = std::ranges::find(columns.numbers, name);
    if (number != columns.numbers.end()) {
      feature.place = static_cast<size_t>(number - columns.numbers.begin());
      PANDO_RETURN_IF_ERROR(FitNumbers(train, columns.missing, &feature));
    } else {
      const auto word = std::ranges::find(columns.words, name);
      feature.place = static_cast<size_t>(word - columns.words.begin());
      PANDO_RETURN_IF_ERROR(FitCategories(train, &feature));
    }
  }
  return features;
}

struct Rows {                 // one split
  std::vector<float> values;  // [row, input]
  std::vector<int32_t> labels;
};

std::string ListStart(const std::vector<std::string>& names) {
  constexpr size_t kShownMax = 10;
  if (names.size() <= kShownMax) return Joined(names);
  return fmt::format(
      "{} and {} more; is the label a number to be predicted? Pando trains "
      "classifiers alone",
      Joined(std::vector(names.begin(), names.begin() + kShownMax)), names.size() - kShownMax);
}

std::map<std::string, size_t> MakeIndex(const std::vector<std::string>& values) {
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < values.size(); ++i) index[values[i]] = i;
  return index;
}

double NumberAt(const CsvRows& rows, size_t row, const Feature& feature) {
  return rows.numbers[row * (rows.numbers.size() / rows.row_count()) + feature.place];
}

// A missing number becomes the mean. kCorrupt: a float cannot hold the result.
Result<float> Standardise(const CsvRows& rows, size_t row, const Feature& feature) {
  const double number = NumberAt(rows, row, feature);
  if (feature.is_constant || std::isnan(number)) return 0.0f;
  const double value = (number - feature.mean) / feature.deviation;
  if (std::abs(value) <= std::numeric_limits<float>::max()) return static_cast<float>(value);
  return Corrupt(fmt::format(
      "{}: line {}: column '{}' holds {}, which is {:g} deviations from the training rows' mean, "
      "expected less than {:g}; correct it, or leave the column out (data.columns)",
      rows.path, rows.lines[row], feature.name, number, std::abs(value),
      std::numeric_limits<float>::max()));
}

Result<std::vector<int32_t>> MakeLabels(const CsvRows& rows,
                                        const std::vector<std::string>& class_names) {
  const std::map<std::string, size_t> classes = MakeIndex(class_names);
  std::vector<int32_t> labels;
  for (size_t row = 0; row < rows.row_count(); ++row) {
    const auto at = classes.find(rows.labels[row]);
    if (at == classes.end()) {
      return Corrupt(
          fmt::format("{}: line {}: unknown class '{}' in the test split; the training "
                      "rows know {}",
                      rows.path, rows.lines[row], rows.labels[row], ListStart(class_names)));
    }
    labels.push_back(static_cast<int32_t>(at->second));
  }
  return labels;
}

// Returns inputs [row, input]. A category that no training row has is 0 in all its inputs.
Result<std::vector<float>> MakeValues(const CsvRows& rows, const std::vector<Feature>& features) {
  std::vector<std::map<std::string, size_t>> categories;
  size_t input_count = 0;
  for (const Feature& f : features) {
    categories.push_back(MakeIndex(f.categories));
    input_count += f.input_count();
  }
  if (rows.row_count() > kBytesMax / sizeof(float) / input_count) {
    return InvalidArgument(
        fmt::format("{}: {} rows of {} inputs do not fit into memory; choose fewer columns "
                    "(data.columns): each value of a category is an input",
                    rows.path, rows.row_count(), input_count));
  }
  std::vector<float> values(rows.row_count() * input_count);
  float* value = values.data();
  for (size_t row = 0; row < rows.row_count(); ++row) {
    for (size_t i = 0; i < features.size(); ++i) {
      const Feature& f = features[i];
      if (f.categories.empty()) {
        PANDO_ASSIGN_OR_RETURN(*value, Standardise(rows, row, f));
        if (f.has_missing_input) value[1] = std::isnan(NumberAt(rows, row, f)) ? 1.0f : 0.0f;
        value += f.input_count();
        continue;
      }
      const auto known = categories[i].find(rows.words[f.place][row]);
      if (known != categories[i].end()) value[known->second] = 1.0f;
      value += f.categories.size();
    }
  }
  return values;
}

Result<Rows> MakeRows(const CsvRows& rows, const std::vector<std::string>& class_names,
                      const std::vector<Feature>& features) {
  PANDO_ASSIGN_OR_RETURN(std::vector<int32_t> labels, MakeLabels(rows, class_names));
  PANDO_ASSIGN_OR_RETURN(std::vector<float> values, MakeValues(rows, features));
  return Rows{std::move(values), std::move(labels)};
}

std::string FeatureText(const Feature& f) {
  if (!f.categories.empty())
    return fmt::format("column {}: one input each for {}", f.name, Joined(f.categories));
  std::string text = fmt::format("column {}: mean {:.6g}, deviation {:.6g} (of the training rows)",
                                 f.name, f.mean, f.deviation);
  if (f.missing_count == 0) return text;
  return text + fmt::format("; {} missing values are the mean{}", f.missing_count,
                            f.has_missing_input ? ", with 1 in one more input" : "");
}

std::vector<std::string> FeaturesText(const std::vector<Feature>& features) {
  std::vector<std::string> lines;
  for (const Feature& f : features) lines.push_back(FeatureText(f));
  return lines;
}

std::vector<std::string> NoticesFor(const std::vector<Feature>& features, size_t row_count) {
  constexpr size_t kFewCategories = 20;
  std::vector<std::string> lines;
  for (const Feature& f : features) {
    if (f.categories.size() > kFewCategories && f.categories.size() > row_count / 2) {
      lines.push_back(fmt::format(
          "column {}: {} different texts in {} training rows, each an input of the network; most "
          "are in one row only, so that it learns little from them (data.columns)",
          f.name, f.categories.size(), row_count));
    }
    if (!f.is_constant) continue;
    lines.push_back(fmt::format(
        "column {}: constant in the training rows except for rounding (mean {}, deviation "
        "{:g}): its input is 0",
        f.name, f.mean, f.deviation));
  }
  return lines;
}

Preprocessing InputsFor(const std::vector<Feature>& features) {
  Preprocessing inputs;
  const auto add = [&](std::string name, double mean, double deviation) {
    inputs.columns.push_back(std::move(name));
    inputs.mean.push_back(mean);
    inputs.deviation.push_back(deviation);
  };
  for (const Feature& f : features) {
    if (f.categories.empty()) add(f.name, f.mean, f.exported_deviation());
    if (f.has_missing_input) add(f.name + "=", 0, 1);
    for (const std::string& category : f.categories) add(f.name + "=" + category, 0, 1);
  }
  return inputs;
}

// Returns the table's column to which an input belongs: `island` for "island=Dream", `mass` for
// "mass=". kCorrupt: there is none, or another column's name has such an end.
Result<std::string> ColumnFor(const CsvFile& file, const std::string& input) {
  std::set<std::string> columns;
  for (const std::string& name : file.header()) {
    if (input.starts_with(name) && (input.size() == name.size() || input[name.size()] == '='))
      columns.insert(name);
  }
  if (columns.size() == 1) return *columns.begin();
  if (columns.empty()) {
    const std::string name = input.substr(0, input.find('='));
    return file.Find(name, "input_columns of the weights").status();
  }
  return Corrupt(fmt::format(
      "{}: line 1: has columns '{}' and '{}', and the input '{}' may be of either; rename the "
      "second",
      file.path(), *columns.begin(), *columns.rbegin(), input));
}

// Finds the features from which InputsFor made these inputs; kCorrupt if there are none.
Result<std::vector<Feature>> FindFeatures(const CsvFile& file, const Preprocessing& inputs) {
  std::vector<Feature> features;
  for (size_t i = 0; i < inputs.columns.size(); ++i) {
    const std::string& input = inputs.columns[i];
    PANDO_ASSIGN_OR_RETURN(const std::string column, ColumnFor(file, input));
    const bool is_new = features.empty() || features.back().name != column;
    if (is_new) features.push_back({.name = column});
    Feature& feature = features.back();
    if (input == column) {
      feature.mean = inputs.mean[i];
      feature.deviation = inputs.deviation[i];
      feature.is_constant = feature.deviation == std::numeric_limits<double>::max();
    } else if (!is_new && feature.categories.empty()) {
      feature.has_missing_input = true;
    } else {
      feature.categories.push_back(input.substr(column.size() + 1));
    }
  }
  const std::set<std::string> names(inputs.columns.begin(), inputs.columns.end());
  const bool is_twice = names.size() < inputs.columns.size();
  if (!is_twice && InputsFor(features).columns == inputs.columns) return features;
  return Corrupt(fmt::format("input_columns of the weights are not the inputs of a table{}: {}",
                             is_twice ? " (one is there twice)" : "", Joined(inputs.columns)));
}

class TableSet final : public DataSet {
 public:
  // REQUIRES: each split has a value per input for each label, and labels below the class count.
  TableSet(const std::vector<Feature>& features, std::vector<std::string> class_names, Rows train,
           Rows test)
      : preprocessing_(InputsFor(features)),
        columns_(static_cast<uint32_t>(preprocessing_.columns.size())),
        class_names_(std::move(class_names)),
        train_(std::move(train)),
        test_(std::move(test)),
        remarks_(FeaturesText(features)),
        notices_(NoticesFor(features, train_.labels.size())) {
    for (const Rows* split : {&train_, &test_}) {
      PANDO_CHECK(split->values.size() == split->labels.size() * columns_);
    }
  }

  SampleShape shape() const override { return {1, 1, columns_}; }
  uint32_t class_count() const override { return static_cast<uint32_t>(class_names_.size()); }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::vector<std::string> remarks() const override { return remarks_; }
  std::vector<std::string> notices() const override { return notices_; }
  uint64_t sample_count(Split split) const override { return rows(split).labels.size(); }
  Preprocessing preprocessing() const override { return preprocessing_; }
  uint64_t fingerprint() const override { return fingerprint_; }
  Status Fill(const Samples& part, size_t place, Batch* batch) const override {
    const Rows& source = rows(part.split);
    for (const uint64_t index : part.indices) {
      PANDO_CHECK(index < source.labels.size());
      std::copy_n(&source.values[index * columns_], columns_, &batch->values[place * columns_]);
      batch->labels[place++] = source.labels[index];
    }
    return Status();
  }

 private:
  const Rows& rows(Split split) const { return split == Split::kTrain ? train_ : test_; }

  // Hashes every value (P38), since tables are small.
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

  const Preprocessing preprocessing_;
  const uint32_t columns_;
  const std::vector<std::string> class_names_;
  const Rows train_;
  const Rows test_;
  const std::vector<std::string> remarks_;
  const std::vector<std::string> notices_;
  const uint64_t fingerprint_ = MakeFingerprint();
};

OpenedDataSet OpenTables(const Job& job, const TablePaths& paths, const CsvColumns& columns,
                         const std::vector<std::string>& names) {
  PANDO_ASSIGN_OR_RETURN(SplitRows rows, ReadTables(paths, columns, job.test_share));
  PANDO_ASSIGN_OR_RETURN(std::vector<std::string> classes, ListClasses(rows.train));
  PANDO_ASSIGN_OR_RETURN(std::vector<Feature> features, FitFeatures(rows.train, columns, names));
  // `pando predict` must find the columns by the names of inputs.
  PANDO_ASSIGN_OR_RETURN(const CsvFile file, CsvFile::Open(paths.train));
  PANDO_RETURN_IF_ERROR(FindFeatures(file, InputsFor(features)).status());
  PANDO_ASSIGN_OR_RETURN(Rows train, MakeRows(rows.train, classes, features));
  PANDO_ASSIGN_OR_RETURN(Rows test, MakeRows(rows.test, classes, features));
  return OpenedDataSet(
      std::make_unique<TableSet>(features, std::move(classes), std::move(train), std::move(test)));
}

}  // namespace

OpenedDataSet OpenSdss(const Job& job, const DataWarning&) {
  PANDO_ASSIGN_OR_RETURN(TablePaths paths, FindTables(job.data_path, job.dataset));
  std::vector<std::string> names = job.columns;
  if (names.empty()) names.assign(kSdssColumns.begin(), kSdssColumns.end());
  const std::string label = job.label.empty() ? kSdssLabel : job.label;
  return OpenTables(job, paths, {.numbers = names, .label = label, .missing = job.missing}, names);
}

OpenedDataSet OpenCsv(const Job& job, const DataWarning&) {
  PANDO_ASSIGN_OR_RETURN(TablePaths paths, FindTables(job.data_path, job.dataset));
  PANDO_ASSIGN_OR_RETURN(CsvFile file, CsvFile::Open(paths.train));
  if (job.label.empty()) {
    return InvalidArgument(
        fmt::format("{}: which column has the classes? name it with data.label (--label COLUMN); "
                    "the columns are {}",
                    paths.train, Joined(file.header())));
  }
  PANDO_RETURN_IF_ERROR(file.Find(job.label, "data.label").status());
  std::vector<std::string> names = job.columns.empty() ? file.header() : job.columns;
  if (job.columns.empty()) std::erase(names, job.label);
  if (names.empty() || std::ranges::find(names, job.label) != names.end()) {
    return InvalidArgument(
        fmt::format("{}: data.columns must be columns other than the label '{}'; the columns are "
                    "{}",
                    paths.train, job.label, Joined(file.header())));
  }
  if (std::ranges::find(names, "") != names.end()) {
    return InvalidArgument(
        fmt::format("{}: a column has no name; is it an index? name the columns to learn from "
                    "(data.columns)",
                    paths.train));
  }
  PANDO_ASSIGN_OR_RETURN(CsvColumns columns, SortColumns(paths.train, names));
  columns.label = job.label;
  columns.missing = job.missing;
  return OpenTables(job, paths, columns, names);
}

// ---- rows without labels ------------------------------------------------------------------------

namespace {

// Names categories that no training row had; their inputs are all 0.
std::vector<std::string> UnknownCategories(const CsvRows& rows,
                                           const std::vector<Feature>& features) {
  std::vector<std::string> lines;
  for (const Feature& f : features) {
    if (f.categories.empty()) continue;
    const std::set<std::string> known(f.categories.begin(), f.categories.end());
    std::vector<size_t> unknown;
    for (size_t row = 0; row < rows.row_count(); ++row) {
      if (!known.contains(rows.words[f.place][row])) unknown.push_back(row);
    }
    if (unknown.empty()) continue;
    lines.push_back(fmt::format(
        "column {}: {} rows hold unknown categories, first '{}' in line {}; their inputs are 0",
        f.name, unknown.size(), rows.words[f.place][unknown[0]], rows.lines[unknown[0]]));
  }
  return lines;
}

}  // namespace

Result<UnlabelledSamples> OpenRows(const std::string& path, const JobPlan& plan) {
  const DenormalsKept kept;  // as in OpenDataSet
  PANDO_ASSIGN_OR_RETURN(CsvFile file, CsvFile::Open(path));
  PANDO_ASSIGN_OR_RETURN(std::vector<Feature> features,
                         FindFeatures(file, plan.data.preprocessing));
  CsvColumns columns{.missing = plan.job.missing};
  for (Feature& feature : features) {
    std::vector<std::string>& names = feature.categories.empty() ? columns.numbers : columns.words;
    feature.place = names.size();
    names.push_back(feature.name);
    const bool has_empty_category =
        std::ranges::find(feature.categories, "") != feature.categories.end();
    if (feature.has_missing_input || has_empty_category) columns.missing = MissingValues::kCategory;
  }
  PANDO_ASSIGN_OR_RETURN(const CsvRows rows, ReadCsv(path, columns));
  PANDO_ASSIGN_OR_RETURN(std::vector<float> made, MakeValues(rows, features));
  const auto values = std::make_shared<const std::vector<float>>(std::move(made));
  UnlabelledSamples samples;
  samples.notices = UnknownCategories(rows, features);
  for (size_t row = 1; row <= rows.row_count(); ++row)
    samples.names.push_back(fmt::format("{}", row));
  samples.read = [values, shape = plan.data.shape](size_t first, size_t last, Batch* batch) {
    *batch = {.shape = shape};
    batch->values.assign(values->begin() + static_cast<std::ptrdiff_t>(first * shape.size()),
                         values->begin() + static_cast<std::ptrdiff_t>(last * shape.size()));
    batch->labels.resize(last - first);
    return Status();
  };
  return samples;
}

bool IsSdss(const std::string& path) {
  const Result<TablePaths> paths = FindTables(path, "sdss");
  if (!paths.ok()) return false;
  const Result<CsvFile> file = CsvFile::Open(paths->train);
  if (!file.ok()) return false;
  const auto has = [&](const char* name) { return file->Find(name, "").ok(); };
  return has(kSdssLabel) && std::ranges::all_of(kSdssColumns, has);
}

}  // namespace pando
