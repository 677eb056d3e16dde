#include "data/dataset.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "tests/data/check_message.h"
#include "tests/data/idx_files.h"
#include "tests/data/read_all.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

Bytes Text(const std::string& text) { return Bytes(text.begin(), text.end()); }

const std::string kHeader = "objid,u,g,r,i,z,class,redshift\r\n";

// Row n of a table: the column u counts up, all else is the same.
std::string Row(int n, const std::string& word) {
  return "1.2E+18," + std::to_string(n) + ",1,2,3,4," + word + ",0.5\r\n";
}

std::string Table(int rows) {
  std::string text = kHeader;
  for (int n = 0; n < rows; ++n) text += Row(n, n % 2 == 0 ? "STAR" : "GALAXY");
  return text;
}

struct TinyTable {
  TempFolder folder;
  Job job;
  explicit TinyTable(const std::string& text) {
    folder.Write("stars.csv", Text(text));
    job.dataset = "sdss";
    job.data_path = folder.path();
  }
  std::string file() const { return folder.File("stars.csv"); }
};

TEST_CASE("a table is split by fifths, and standardised by its training rows") {
  TinyTable tiny(Table(100));
  auto data = OpenDataSet(tiny.job);
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  CHECK((*data)->shape() == SampleShape{1, 1, 6});
  CHECK((*data)->class_names() == std::vector<std::string>{"GALAXY", "STAR"});
  CHECK((*data)->sample_count(Split::kTrain) == 80);
  CHECK((*data)->sample_count(Split::kTest) == 20);
  const Batch train = ReadAll(**data, Split::kTrain);
  CHECK(train.bytes.empty());
  double sum = 0, squares = 0;
  for (size_t row = 0; row < 80; ++row) {
    sum += train.values[row * 6];
    squares += train.values[row * 6] * train.values[row * 6];
    CHECK(train.values[row * 6 + 1] == 0.0f);  // a column without spread
  }
  CHECK(std::abs(sum) < 1e-4);  // 80 floats rounded at 1e-7
  CHECK(std::abs(squares / 80 - 1) < 1e-5);
}

TEST_CASE("the split is the same for every seed and file name, and labels keep to their rows") {
  TinyTable tiny(Table(100));
  auto data = OpenDataSet(tiny.job);
  tiny.job.seed = 99;
  tiny.job.data_path = tiny.file();
  auto again = OpenDataSet(tiny.job);
  CHECK((*data)->fingerprint() == (*again)->fingerprint());
  // One of two neighbours in u is a star, the other a galaxy: u tells the label.
  for (Split split : {Split::kTrain, Split::kTest}) {
    const Batch batch = ReadAll(**data, split);
    const Batch train = ReadAll(**data, Split::kTrain);
    for (size_t row = 0; row < batch.labels.size(); ++row) {
      CHECK(std::isfinite(batch.values[row * 6]));
      CHECK((batch.labels[row] == 0 || batch.labels[row] == 1));
    }
  }
  tiny.folder.Write("stars.csv", Text(Table(99) + Row(1000, "STAR")));
  CHECK((*OpenDataSet(tiny.job))->fingerprint() != (*data)->fingerprint());
}

TEST_CASE("columns are found by name, in any order, and can be chosen") {
  TinyTable tiny(
      "class , \"x\",y\nA,1,5\n\"B \"\"b\"\"\",2,6\nA,3,7\n\"B \"\"b\"\"\",9,9\nA,1,2\n\"B "
      "\"\"b\"\"\",4,4\n");
  tiny.job.columns = {"y", "x"};
  auto data = OpenDataSet(tiny.job);
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  CHECK((*data)->shape() == SampleShape{1, 1, 2});
  CHECK((*data)->sample_count(Split::kTrain) + (*data)->sample_count(Split::kTest) == 6);
  CHECK((*data)->class_names() == std::vector<std::string>{"A", "B \"b\""});
}

TEST_CASE("a missing column is named, with the columns that are there") {
  TinyTable tiny("objid,u,g,r,i,z,class,redshft\n1,2,3,4,5,6,STAR,7\n");
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt,
               {tiny.file(), "line 1", "no column 'redshift'", "objid, u, g", "did you mean"});
}

TEST_CASE("a line that is cut, a field that is no number and a class that is missing are named") {
  TinyTable tiny(kHeader + Row(1, "STAR") + "1,2,3\r\n");
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt,
               {tiny.file(), "line 3", "3 fields, expected 8"});
  for (const char* wrong : {"abc", "", "nan", "1e999", "1.5x"}) {
    tiny.folder.Write("stars.csv", Text(kHeader + "1,2," + wrong + ",2,3,4,STAR,5\r\n"));
    CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt,
                 {"line 2", "column 'g'", std::string("'") + wrong + "'", "a number"});
  }
  tiny.folder.Write("stars.csv", Text(kHeader + Row(1, "")));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt,
               {"line 2", "column 'class' is empty"});
  tiny.folder.Write("stars.csv", Text(kHeader));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt, {"no rows"});
  tiny.folder.Write("stars.csv", {});
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt, {"is empty"});
}

TEST_CASE("one class alone is an error") {
  TinyTable tiny(kHeader + Row(1, "STAR") + Row(2, "STAR") + Row(3, "STAR") + Row(4, "STAR"));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt,
               {tiny.file(), "one class, STAR"});
}

TEST_CASE("two files are two splits, and a class that only the test rows have is an error") {
  TinyTable tiny(Table(4));
  tiny.folder.Write("train.csv", Text(Table(10)));
  const std::string test = tiny.folder.Write("test.csv", Text(kHeader + Row(1, "STAR")));
  auto data = OpenDataSet(tiny.job);
  REQUIRE(data.ok());
  CHECK((*data)->sample_count(Split::kTrain) == 10);
  CHECK((*data)->sample_count(Split::kTest) == 1);
  tiny.folder.Write("test.csv", Text(kHeader + Row(1, "STAR") + Row(2, "QSO")));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt,
               {test, "line 3", "unknown class 'QSO'", "GALAXY, STAR"});
}

TEST_CASE("where the table is must be clear") {
  TinyTable tiny(Table(4));
  tiny.folder.Write("others.csv", Text(Table(4)));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kInvalidArgument,
               {"2 .csv files", "others.csv", "--data", "train.csv and test.csv"});
  CHECK(GuessDataSet(tiny.job.data_path) != "");
  tiny.job.data_path = tiny.folder.File("nowhere");
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kNotFound, {"nowhere", "no such file"});
  tiny.job.data_path = "";
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kInvalidArgument,
               {"no file given for sdss", "--data"});
}

struct OwnTable : TinyTable {
  explicit OwnTable(const std::string& text) : TinyTable(text) {
    job.dataset = "csv";
    job.label = "species";
  }
};

TEST_CASE("a user's table has numbers, categories and any share of test rows") {
  std::string text = "body mass,island,species,note\n";
  for (int n = 0; n < 12; ++n) {
    text += std::to_string(n) + "," + (n % 3 == 0 ? "Dream" : "Biscoe") + "," +
            (n % 2 == 0 ? "10" : "9") + ",x" + std::to_string(n) + "\n";
  }
  OwnTable tiny(text);
  tiny.job.columns = {"island", "body mass"};
  tiny.job.test_share = 0.25;
  auto data = OpenDataSet(tiny.job);
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  CHECK((*data)->shape() == SampleShape{1, 1, 3});
  CHECK((*data)->class_names() == std::vector<std::string>{"9", "10"});
  CHECK((*data)->sample_count(Split::kTrain) == 9);
  CHECK((*data)->sample_count(Split::kTest) == 3);
  const Preprocessing inputs = (*data)->facts().preprocessing;
  CHECK(inputs.columns == std::vector<std::string>{"island=Biscoe", "island=Dream", "body mass"});
  CHECK(inputs.mean[0] == 0);
  CHECK(inputs.deviation[0] == 1);
  CHECK(inputs.class_names == std::vector<std::string>{"9", "10"});
  const Batch train = ReadAll(**data, Split::kTrain);
  for (size_t row = 0; row < 9; ++row) {
    const float* values = &train.values[row * 3];
    const double mass = values[2] * inputs.deviation[2] + inputs.mean[2];
    const bool is_dream = std::lround(mass) % 3 == 0;
    CHECK(values[0] == (is_dream ? 0.0f : 1.0f));
    CHECK(values[1] == (is_dream ? 1.0f : 0.0f));
    CHECK(train.labels[row] == (std::lround(mass) % 2 == 0 ? 1 : 0));
  }
  tiny.job.columns = {};
  CHECK((*OpenDataSet(tiny.job))->shape() == SampleShape{1, 1, 12});  // nine notes are categories
}

TEST_CASE("two files are two splits, and a category that only the test rows have is no input") {
  OwnTable tiny("unused");
  tiny.folder.Write("train.csv", Text("island,species\nDream,a\nBiscoe,b\n"));
  tiny.folder.Write("test.csv", Text("island,species\nTorgersen,b\n"));
  auto data = OpenDataSet(tiny.job);
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  CHECK(ReadAll(**data, Split::kTrain).values == std::vector<float>{0, 1, 1, 0});
  CHECK(ReadAll(**data, Split::kTest).values == std::vector<float>{0, 0});
}

TEST_CASE("a user's table says what it needs, and which of its fields is wrong") {
  OwnTable tiny("mass,species\n1,a\n2,b\n3,a\nNA,b\n");
  CheckMessage(
      OpenDataSet(tiny.job).status(), StatusCode::kCorrupt,
      {tiny.file(), "line 5", "column 'mass' holds 'NA', expected a number", "--missing mean"});
  tiny.folder.Write("stars.csv", Text("mass,species\n1,a\n2,b\n3,a\nheavy,b\n"));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt,
               {"line 5", "column 'mass' holds 'heavy', and a number in line 2", "data.columns"});
  tiny.job.label = "";
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kInvalidArgument,
               {"--label", "mass, species"});
  tiny.job.label = "specie";
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt,
               {"no column 'specie'", "did you mean", "data.label"});
  tiny.job.label = "species";
  tiny.folder.Write("stars.csv", Text("mass,mass,species\n1,2,a\n"));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt, {"2 columns 'mass'"});
  tiny.folder.Write("stars.csv", Text(",mass,species\n0,2,a\n"));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kInvalidArgument,
               {"a column has no name", "data.columns"});
  tiny.folder.Write("stars.csv", Text("mass,species\n1,\"a\nb\"\n"));
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kCorrupt,
               {"line 2", "a quote is not closed"});
  tiny.folder.Write("stars.csv", Text("mass,species\n1,a\n2,b\n"));
  tiny.job.columns = {"species"};
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kInvalidArgument,
               {"other than the label"});
  tiny.job.dataset = "synthetic-digits";
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kInvalidArgument,
               {"data.label", "is for tables"});
  tiny.job.label = "";
  tiny.job.columns = {};
  tiny.job.missing = MissingValues::kMean;
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kInvalidArgument,
               {"data.missing", "is for tables"});
}

TEST_CASE("what is for pictures is refused for a table") {
  TinyTable tiny(Table(100));
  tiny.job.resize = 32;
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kInvalidArgument,
               {"data.resize", "sdss is a table"});
  tiny.job.resize = 0;
  tiny.job.augment = {"flip"};
  CheckMessage(OpenDataSet(tiny.job).status(), StatusCode::kInvalidArgument, {"data.augment"});
}

// Counts of the classes are the file's own, by `cut -d, -f14 | sort | uniq -c`.
TEST_CASE("SDSS DR14 is read as it was published") {
  const char* root = std::getenv("PANDO_TEST_DATA");
  Job job;
  job.dataset = "sdss";
  if (root != nullptr)
    job.data_path = std::string(root) + "/sdss/Skyserver_SQL2_27_2018 6_51_39 PM.csv";
  if (!std::filesystem::exists(job.data_path)) {
    MESSAGE("SKIPPED: PANDO_TEST_DATA does not hold sdss");
    return;
  }
  auto data = OpenDataSet(job);
  REQUIRE_MESSAGE(data.ok(), data.status().message());
  CHECK((*data)->class_names() == std::vector<std::string>{"GALAXY", "QSO", "STAR"});
  CHECK((*data)->sample_count(Split::kTrain) == 8000);
  CHECK((*data)->sample_count(Split::kTest) == 2000);
  std::vector<int> counts(3);
  for (Split split : {Split::kTrain, Split::kTest}) {
    for (int32_t label : ReadAll(**data, split).labels) ++counts[static_cast<size_t>(label)];
  }
  CHECK(counts == std::vector<int>{4998, 850, 4152});
}

}  // namespace
}  // namespace pando
