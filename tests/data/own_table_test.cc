// Tables as people have them: numbers beyond floats, columns without information, other notations
// and encodings, missing values. Bits are checked against formulas in long double.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <thread>

#include "common/system.h"
#include "data/dataset.h"
#include "tests/data/check_message.h"
#include "tests/data/read_all.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

constexpr size_t kTrainRows = 60, kTestRows = 20;

// train.csv and test.csv: column x as given, column v of small numbers, and two classes.
struct TwoFiles {
  TempFolder folder;
  Job job;
  TwoFiles() {
    job.dataset = "csv";
    job.label = "label";
    job.data_path = folder.path();
  }
  Result<std::unique_ptr<DataSet>> Open() const { return OpenDataSet(job); }
  void CheckError(const std::vector<std::string>& parts) const {
    CheckMessage(Open().status(), StatusCode::kCorrupt, parts);
  }
  void Write(const std::string& name, const std::string& text) const {
    folder.Write(name, {text.begin(), text.end()});
  }
  // The same file is both splits.
  void WriteBoth(const std::string& text) const {
    Write("train.csv", text);
    Write("test.csv", text);
  }
  void WriteColumn(const std::vector<std::string>& x) const {
    Write("train.csv", Rows(x, 0, kTrainRows));
    Write("test.csv", Rows(x, kTrainRows, kTrainRows + kTestRows));
  }
  static std::string Rows(const std::vector<std::string>& x, size_t first, size_t last) {
    std::string text = "x,v,label\n";
    for (size_t i = first; i < last; ++i)
      text += fmt::format("{},{},{}\n", x[i], 0.5 * static_cast<double>(i % 7), "ab"[i % 2]);
    return text;
  }
};

std::vector<std::string> Column(const std::function<std::string(size_t row)>& text) {
  std::vector<std::string> column;
  for (size_t i = 0; i < kTrainRows + kTestRows; ++i) column.push_back(text(i));
  return column;
}

// (x - mean) / deviation of the training rows, in long double.
std::vector<float> Standardised(const std::vector<std::string>& texts) {
  std::vector<long double> x;
  for (const std::string& text : texts) x.push_back(std::strtod(text.c_str(), nullptr));
  long double mean = 0, squares = 0;
  for (size_t i = 0; i < kTrainRows; ++i) mean += x[i] / kTrainRows;
  for (size_t i = 0; i < kTrainRows; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const long double deviation = std::sqrt(squares / kTrainRows);
  std::vector<float> values;
  for (const long double number : x)
    values.push_back(static_cast<float>((number - mean) / deviation));
  return values;
}

std::vector<float> Values(const DataSet& data, size_t column) {
  std::vector<float> values;
  for (const Split split : {Split::kTrain, Split::kTest}) {
    const Batch batch = ReadAll(data, split);
    for (size_t i = column; i < batch.values.size(); i += data.shape().channels)
      values.push_back(batch.values[i]);
  }
  return values;
}

// A double's error of the mean, in deviations: 1e9 ms of 1.6e12 ms leave 12 digits.
constexpr float kStandardisedTolerance = 2e-6f;

void CheckStandardised(const TwoFiles& table, const std::vector<std::string>& column) {
  table.WriteColumn(column);
  const auto data = table.Open();
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  const std::vector<float> values = Values(**data, 0), expected = Standardised(column);
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    INFO(column[i], ": ", values[i], ", expected ", expected[i]);
    CHECK(std::abs(values[i] - expected[i]) <= kStandardisedTolerance);
  }
  // The exported preprocessing gives the same inputs, bit for bit.
  const Preprocessing inputs = (*data)->facts().preprocessing;
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = std::strtod(column[i].c_str(), nullptr);
    CHECK(values[i] == static_cast<float>((x - inputs.mean[0]) / inputs.deviation[0]));
  }
}

TEST_CASE("exported moments are those that the run trained with, in double") {
  const TwoFiles table;
  CheckStandardised(table, Column([](size_t i) {
                      return fmt::format("{}", 1'609'459'203'218 + 1974 * ((i * 37) % 50));
                    }));
}

TEST_CASE("numbers beyond floats are standardised in double") {
  const TwoFiles table;
  CheckStandardised(table, Column([](size_t i) { return fmt::format("{}.5e45", 1 + i % 9); }));
  CheckStandardised(table, Column([](size_t i) { return fmt::format("-{}e148", 1 + i % 9); }));
  CheckStandardised(table, Column([](size_t i) { return fmt::format("{}e-200", 1 + i % 9); }));
}

TEST_CASE("the largest doubles are one error that names column and line") {
  const TwoFiles table;
  for (const char* large : {"-1.7976931348623157e+308", "1e151", "1e999", "-1e400"}) {
    table.WriteColumn(Column([&](size_t i) { return i == 4 ? large : "1.5"; }));
    table.CheckError({"train.csv: line 6: column 'x'", large, "data.columns", "data.missing"});
  }
}

TEST_CASE("a test row that no float can hold is an error that names it") {
  const TwoFiles table;
  table.WriteColumn(Column([&](size_t i) {
    return i == kTrainRows + 2 ? "1e60" : i % 2 == 0 ? "1" : "1.5";
  }));
  table.CheckError({"test.csv: line 4: column 'x' holds 1e+60", "deviations"});
}

TEST_CASE("a column that is constant except for rounding is 0, with a notice") {
  const TwoFiles table;
  const std::vector<std::vector<std::string>> columns{
      Column([](size_t) { return "1234567890123456789"; }),
      Column([](size_t i) { return fmt::format("{}", 1234567890123456789 + 977 * i); }),
      Column([](size_t) { return "0.1"; }),
      Column([](size_t) { return "-3e-200"; }),
  };
  for (const auto& column : columns) {
    table.WriteColumn(column);
    const auto data = table.Open();
    REQUIRE_MESSAGE(data.ok(), data.status().message());
    for (const float value : Values(**data, 0)) CHECK(value == 0.0f);
    REQUIRE((*data)->notices().size() == 1);
    CHECK((*data)->notices()[0].find("column x: constant") != std::string::npos);
    const Preprocessing inputs = (*data)->facts().preprocessing;
    const double x = std::strtod(column[0].c_str(), nullptr);
    CHECK(static_cast<float>((x - inputs.mean[0]) / inputs.deviation[0]) == 0.0f);
  }
}

TEST_CASE("a small spread beside a large mean is information") {
  const TwoFiles table;
  CheckStandardised(table, Column([](size_t i) { return fmt::format("{}", 1e9 + double(i % 5)); }));
}

TEST_CASE("a table has the same values in a thread that flushes denormals") {
  const TwoFiles table;
  table.WriteColumn(Column([](size_t i) { return fmt::format("{}e-308", 3 + i % 9); }));
  const auto before = table.Open();
  REQUIRE_MESSAGE(before.ok(), before.status().message());
  Result<std::unique_ptr<DataSet>> flushed = Corrupt("not read");
  std::thread([&] {
    SetFloatEnvironment();
    flushed = table.Open();
  }).join();
  REQUIRE_MESSAGE(flushed.ok(), flushed.status().message());
  CHECK((*flushed)->fingerprint() == (*before)->fingerprint());
}

TEST_CASE("a plus sign and a number that rounds to 0 are numbers") {
  const TwoFiles table;
  table.WriteColumn(Column([](size_t i) { return fmt::format("+{}.5", i % 9); }));
  const auto plus = table.Open();
  REQUIRE_MESSAGE(plus.ok(), plus.status().message());
  table.WriteColumn(Column([](size_t i) { return fmt::format("{}.5", i % 9); }));
  CHECK((*plus)->fingerprint() == (*table.Open())->fingerprint());
  table.WriteColumn(Column([](size_t i) { return i == 3 ? "1e-400" : fmt::format("{}", i % 9); }));
  const auto tiny = table.Open();
  REQUIRE_MESSAGE(tiny.ok(), tiny.status().message());
  table.WriteColumn(Column([](size_t i) { return i == 3 ? "0" : fmt::format("{}", i % 9); }));
  CHECK((*tiny)->fingerprint() == (*table.Open())->fingerprint());
  table.WriteColumn(Column([](size_t i) { return i == 3 ? "+-1" : fmt::format("{}", i % 9); }));
  table.CheckError({"line 5", "'+-1'"});
}

// ---- missing values -----------------------------------------------------------------------------

TEST_CASE("missing values are an error that names what can be done, the mean, or a category") {
  TwoFiles table;
  for (const char* missing : {"", "NA", "nan", "NULL", "?", "N/A"}) {
    table.job.missing = MissingValues::kError;
    table.WriteBoth(fmt::format("x,y,label\n1,u,a\n{},u,b\n3,v,a\n", missing));
    table.CheckError({"train.csv: line 3: column 'x' holds '" + std::string(missing) + "'",
                      "expected a number", "--missing mean", "data.missing"});
    table.job.missing = MissingValues::kMean;
    auto data = table.Open();
    REQUIRE_MESSAGE(data.ok(), data.status().message());
    CHECK(Values(**data, 0) == std::vector<float>{-1, 0, 1, -1, 0, 1});
    CHECK((*data)->remarks()[0].find("1 missing values are the mean") != std::string::npos);
    table.job.missing = MissingValues::kCategory;
    data = table.Open();
    REQUIRE_MESSAGE(data.ok(), data.status().message());
    CHECK((*data)->facts().preprocessing.columns ==
          std::vector<std::string>{"x", "x=", "y=u", "y=v"});
    CHECK(Values(**data, 0) == std::vector<float>{-1, 0, 1, -1, 0, 1});
    CHECK(Values(**data, 1) == std::vector<float>{0, 1, 0, 0, 1, 0});
  }
}

TEST_CASE("a missing text is a category or an error, and a missing class an error") {
  TwoFiles table;
  table.WriteBoth("y,label\nu,a\n,b\nNone,a\n");
  table.CheckError({"line 3", "column 'y' is empty", "--missing category"});
  table.job.missing = MissingValues::kMean;
  table.CheckError({"line 3", "column 'y' is empty", "no mean", "--missing category"});
  table.job.missing = MissingValues::kCategory;
  const auto data = table.Open();
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  CHECK((*data)->facts().preprocessing.columns == std::vector<std::string>{"y=", "y=None", "y=u"});
  table.WriteBoth("x,label\n1,a\n2,\n");
  table.CheckError({"line 3", "column 'label' is empty", "expected a class"});
  table.WriteBoth("x,y,label\nNA,1,a\nNA,2,b\n");
  table.CheckError({"column 'x' holds no number in any training row", "data.columns"});
}

TEST_CASE("a label that says that it is missing is an error that names the line") {
  const TwoFiles table;
  for (const char* missing : {"nan", "NaN", "NA", "?", "null", "NULL", "None", "N/A", "<NA>",
                              "#N/A", "\u00a0nan", "NaT"}) {
    table.WriteBoth(fmt::format("x,label\n1,a\n2,b\n3,{}\n4,a\n", missing));
    table.CheckError(
        {"train.csv: line 4: column 'label' holds '", "expected a class", "give it another one"});
  }
  for (const char* name : {"none", "Null", "no", "unknown", "-", "0"}) {  // these are classes
    table.WriteBoth(fmt::format("x,label\n1,a\n2,b\n3,{}\n4,a\n", name));
    const auto data = table.Open();
    REQUIRE_MESSAGE(data.ok(), data.status().message());
    CHECK((*data)->class_count() == 3);
  }
}

// ---- other notations and encodings --------------------------------------------------------------

TEST_CASE("another separator is named, with what to do") {
  const TwoFiles table;
  const std::string rows = "x,v,label\n1.5,2,a\n2.5,3,b\n";
  const auto with = [&](char separator) {
    std::string text = rows;
    std::ranges::replace(text, ',', separator);
    return text;
  };
  table.WriteBoth(with('\t'));
  table.CheckError({"train.csv: line 1", "separated by tabs, expected commas", "tr '\\t' ,"});
  table.WriteBoth(with('|'));
  table.CheckError({"line 1", "separated by bars", "tr '|' ,"});
  table.WriteBoth(with(' '));
  table.CheckError({"line 1", "separated by blanks", "tr -s ' ' ,"});
  table.WriteBoth("x;v;label\n0,095;1,25;a\n3,979;-1,571;b\n");
  table.CheckError({"line 1", "semicolons", "decimal comma ('0,095'", "sed 's/,/./g; s/;/,/g'"});
  table.WriteBoth("\"x\";\"v\";\"label\"\n\"0,095\";\"1,25\";\"a\"\n");
  table.CheckError({"line 1", "semicolons", "decimal comma ('0,095'"});
  table.WriteBoth("x v label\n0,095 1,25 a\n3,979 -1,571 b\n");
  table.CheckError({"line 1", "blanks", "decimal comma ('0,095'", "sed 's/,/./g; s/  */,/g'"});
  table.WriteBoth("x;y,v,label\n1,2,a\n2,3,b\n");  // a name may have a semicolon
  CHECK(table.Open().ok());
}

TEST_CASE("another encoding is named, with what to do") {
  const TwoFiles table;
  table.WriteBoth(
      "gr\xf6\xdf"
      "e,label\n1,a\n2,b\n");
  table.CheckError({"train.csv: line 1",
                    "'gr\\xf6\\xdf"
                    "e,label' is not UTF-8",
                    "iconv"});
  table.WriteBoth("ort,label\nBonn,a\nK\xf6ln,b\n");
  table.CheckError({"line 3", "column 'ort' holds 'K\\xf6ln', expected UTF-8", "iconv"});
  table.WriteBoth(
      "x,label\n1,m\xfc"
      "de\n2,b\n");
  table.CheckError({"line 2", "column 'label'", "expected UTF-8"});
  table.WriteBoth(
      "x,label\n1,a\n1\xa0"
      "475,b\n");
  table.CheckError({"line 3", "column 'x' holds '1\\xa0475', and a number in line 2", "iconv"});
  table.WriteBoth("x,label\r1,a\r2,b\r");
  table.CheckError({"line 1", "lines end with CR alone", "tr '\\r' '\\n'"});
  for (const bool is_big : {false, true}) {
    std::string wide = is_big ? "\xfe\xff" : "\xff\xfe";
    for (const char c : std::string("x,label\n1,a\n")) {
      wide += is_big ? '\0' : c;
      wide += is_big ? c : '\0';
    }
    table.WriteBoth(wide);
    table.CheckError({"line 1", "UTF-16", "iconv -f UTF-16"});
  }
  table.WriteBoth(
      "\xef\xbb\xbf"
      "größe,label\r\n1,müde\r\n2,b\r\n");  // UTF-8 with a mark is read
  CHECK(table.Open().ok());
}

TEST_CASE("a missing header is named") {
  TwoFiles table;
  table.job.label = "a";
  table.WriteBoth("0.095,1.25,a\n2,3,b\n");
  table.CheckError({"line 1", "holds the number '0.095'", "header seems to be missing"});
  table.WriteBoth("7,0,12\n2,3,4\n");
  table.CheckError({"line 1", "holds the number '7'"});
  table.job.label = "label";
  table.WriteBoth("2019,2020,label\n1,2,a\n2,1,b\n");  // years are names
  CHECK(table.Open().ok());
  for (const char* row : {"+0.5,a", "1e5,a", "-3,a", "17,a"}) {
    table.WriteBoth(fmt::format("{}\n2,b\n3,a\n", row));
    const std::string number(row, std::strchr(row, ','));
    table.CheckError({"line 1", "the number '" + number + "'", "header seems to be missing"});
  }
}

TEST_CASE("numbers in another notation are never categories") {
  const TwoFiles table;
  for (const char* word : {"1,475",
                           "31,745",
                           "1.234.567",
                           "1.234,5",
                           "1 475",
                           "1'475.25",
                           "0,5",
                           "-0,25",
                           "1,5e3",
                           "12%",
                           "12.5 %",
                           "$5",
                           "€1,475",
                           "\u22121.5",
                           "1\u00a0475",
                           "12,34,567",
                           "-1,23,456.5",
                           "5 €",
                           "1.234,50\u00a0€",
                           "1.5D-03",
                           "(1,475)",
                           "(1.5)",
                           "$-5",
                           "-$5.25",
                           "₹1,475",
                           "5-",
                           "- 5",
                           "5 ‰",
                           "1\u2009475",
                           "1\u2007475.5",
                           "1\ufeff5",
                           "1\u200b.5",
                           "１.５",
                           "٣٫٥",
                           "\u20131.5",
                           "'0.5",
                           "“0.5”",
                           "5\u2009%",
                           "1·5"}) {
    table.WriteBoth(fmt::format("u,label\n\"{}\",a\n\"{}\",b\n", word, word));
    table.CheckError({"train.csv: line 2: column 'u' holds '" + std::string(word) + "'",
                      "it looks like a number"});
    table.WriteBoth(fmt::format("u,label\n1,a\n\"{}\",b\n", word));
    table.CheckError({"line 3: column 'u' holds '" + std::string(word) + "'", "a number in line 2",
                      "it looks like a number"});
  }
  for (const char* word : {"2020-01-31", "01.02.2020", "192.168.0.1", "10:30", "A1", "1.2.3", "%",
                           "$", "1/2", "5 km", "-", "12D4", "12.34.567", "(a)", "1,23,45"}) {
    table.WriteBoth(fmt::format("u,label\n\"{}\",a\nx,b\n", word));
    const auto data = table.Open();
    REQUIRE_MESSAGE(data.ok(), data.status().message());
    table.WriteBoth(fmt::format("u,label\n\"{}\",a\n\"{}\",b\n", word, word));
    CHECK(table.Open().ok());
  }
}

// Fields behind a blank, quote or mark that people do not see.
TEST_CASE("blanks and invisible characters around a field are not part of it") {
  const TwoFiles table;
  const auto column = [&](const char* before, const char* behind) {
    table.WriteBoth(fmt::format("{0}x,y{1},label\n{0}-1.5{1},{0}Bonn{1},{0}a{1}\n0.5,Bonn,b\n",
                                before, behind));
    auto data = table.Open();
    REQUIRE_MESSAGE(data.ok(), data.status().message());
    return std::move(*data);
  };
  const auto plain = column("", "");
  CHECK(plain->facts().preprocessing.columns == std::vector<std::string>{"x", "y=Bonn"});
  for (const char* blank : {"\u00a0", "\ufeff", "\u2009", "\u200b", "\u202f", "\u3000", "\u2060",
                            "\t", " \u00a0 ", "\u200e\u2007", "\v", "\u00ad"}) {
    for (const auto& data : {column(blank, ""), column("", blank), column(blank, blank)}) {
      CHECK(data->fingerprint() == plain->fingerprint());
      CHECK(data->facts().preprocessing.columns == plain->facts().preprocessing.columns);
    }
  }
}

// Opens a column of texts with a number in place of their 0: of scale x (row modulo count).
Result<std::unique_ptr<DataSet>> OpenNumbersIn(const TwoFiles& table, const std::string& text,
                                               double scale, size_t count) {
  table.WriteColumn(Column([&](size_t i) {
    std::string field = '"' + text + '"';
    return field.replace(field.find('0'), 1,
                         fmt::format("{}", scale * static_cast<double>(i % count)));
  }));
  return table.Open();
}

TEST_CASE("a column of numbers with units is no category") {
  const TwoFiles table;
  for (const char* text :
       {"0 kg", "0cm", "0\u00a0°C", "0 kg/m2", "0 m²", "USD 0", "EUR0", "US$0", "~0", "< 0",
        "0 months", "Rs. 0/-", "0k", "ca. 0 l", "(0 €)", "≈ 0", "±0%", "≤0"}) {
    CAPTURE(text);
    for (const double scale : {1.0, 0.25, -0.5, 1e-6}) {
      CheckMessage(OpenNumbersIn(table, text, scale, 40).status(), StatusCode::kCorrupt,
                   {"train.csv: line ", "column 'x' holds '", "look"});
    }
  }
  table.WriteBoth("u,label\n5 kg,a\n6 kg,b\n7 kg,a\n8 kg,b\n9 kg,a\n");
  table.CheckError({"line 2: column 'u' holds '5 kg', and 5 of 5 values are like it"});
  // Two units, and a few words among them.
  table.WriteColumn(Column([](size_t i) {
    return i % 9 == 5 ? "unknown" : fmt::format("{}.5 {}", i, i % 2 == 0 ? "kg" : "g");
  }));
  table.CheckError({"line 2: column 'x' holds '0.5 kg', and 53 of 60 values are like it",
                    "numbers with a unit", "a letter in front"});
}

TEST_CASE("names with numbers, and few numbers with a unit, are categories") {
  const TwoFiles table;
  for (const char* text : {"zone 0", "A0", "#0", "0th", "0:30", "0-2020", "T-0", "n0 kg",
                           "192.168.1.0", "item_0_b", "№ 0", "0/64"}) {
    CAPTURE(text);
    const auto data = OpenNumbersIn(table, text, 1, 40);
    REQUIRE_MESSAGE(data.ok(), data.status().message());
    CHECK((*data)->shape().channels == 41);
    CHECK((*data)->notices().size() == 1);  // 40 texts in 60 rows
  }
  for (const auto& [text, count] :
       std::vector<std::pair<const char*, size_t>>{{"0 months", 2}, {"0 rooms", 9}, {"0am", 12}}) {
    const auto data = OpenNumbersIn(table, text, 1, count);
    REQUIRE_MESSAGE(data.ok(), data.status().message());
    CHECK((*data)->notices().empty());
  }
  CHECK(OpenNumbersIn(table, "Android 0", 0.125, 20).ok());
}

TEST_CASE("a column of which most values look like numbers is no category") {
  const TwoFiles table;
  table.WriteBoth("u,label\n-,a\n\"1,475\",b\n\"2,310\",a\n");
  table.CheckError({"line 3: column 'u' holds '1,475', and 2 of 3 values are like it"});
  table.WriteBoth("u,label\n1475,a\n-,b\n");
  table.CheckError({"line 3: column 'u' holds '-', and a number in line 2", "write NA"});
  table.WriteBoth("u,label\n5%,a\nlow,b\nhigh,a\n");
  CHECK(table.Open().ok());
}

// ---- variations ---------------------------------------------------------------------------------

// Ten of each kind, by a fixed seed. Equal inputs give a run equal accuracy, so inputs are
// compared.
TEST_CASE("columns of times, luminosities and ids are standardised as in long double") {
  const TwoFiles table;
  std::mt19937_64 random(39);
  const auto drawn = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
  };
  for (int variation = 0; variation < 10; ++variation) {
    CAPTURE(variation);
    const double first = 1.6e9 * std::pow(1000, variation % 4);  // seconds to nanoseconds
    const double spread = first * std::pow(10, -drawn(1, 6));
    CheckStandardised(
        table, Column([&](size_t) { return fmt::format("{:.0f}", first + drawn(0, spread)); }));
    const double exponent = drawn(-140, 140);
    CheckStandardised(table, Column([&](size_t) {
                        return fmt::format("{:.4e}", std::pow(10, exponent + drawn(0, 3)));
                      }));
    const double id = std::floor(drawn(1e15, 1.8e19)), step = std::floor(drawn(1, 40));
    table.WriteColumn(Column(
        [&](size_t i) { return fmt::format("{:.0f}", id + step * static_cast<double>(i)); }));
    const auto data = table.Open();
    REQUIRE_MESSAGE(data.ok(), data.status().message());
    for (const float value : Values(**data, 0)) CHECK(std::abs(value) < 5);  // 0, or standardised
  }
}

// The text of a table in another form.
std::string Reencoded(int variation, std::string text) {
  const char separators[] = {'\t', ';', '|'};
  const bool has_wide_bytes = variation % 2 == 1;
  if (variation < 6) std::ranges::replace(text, ',', separators[variation % 3]);
  if (variation >= 6 && variation < 8) std::ranges::replace(text, '\n', '\r');
  if (variation >= 8) text.replace(text.find("label"), 1, "\xf6");
  if (!has_wide_bytes) return text;
  std::string wide = "\xff\xfe";
  for (const char c : text) wide += {c, '\0'};
  return wide;
}

TEST_CASE("tables in other separators and encodings are one error that says how to convert them") {
  const TwoFiles table;
  const std::string plain =
      TwoFiles::Rows(Column([](size_t i) { return std::to_string(i % 9); }), 0, 9);
  for (int variation = 0; variation < 10; ++variation) {
    CAPTURE(variation);
    table.WriteBoth(Reencoded(variation, plain));
    table.CheckError({"train.csv: line 1: ", "convert it: "});
  }
  table.WriteBoth(plain);
  CHECK(table.Open().ok());
}

}  // namespace
}  // namespace pando
