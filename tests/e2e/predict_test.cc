// `pando predict` beside `pando evaluate`: on the test samples without their labels it is right as
// often, from a run folder, a snapshot and a weights file, and with the training data gone.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/exit_codes.h"
#include "data/kinds.h"
#include "data/picture_file.h"
#include "tests/e2e/run_files.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

std::string Ran(const TempFolder& temp, const Args& args, int exit_code = kExitCompleted) {
  Process process(temp.path(), args[0], args);
  process.Await();
  INFO(process.err());
  CHECK(process.exit_code() == exit_code);
  return exit_code == kExitCompleted ? process.out() : process.err();
}

uint64_t CountCorrect(const TempFolder& temp, const std::string& weights) {
  return nlohmann::json::parse(Ran(temp, {"evaluate", weights, "--json"})).at("correct");
}

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> Fields(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> fields;
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

// How many rows have the label that `expected` has for them. Each row's label is the class of the
// largest probability, and probabilities add up to 1.
uint64_t RightRows(const std::string& csv, const std::vector<std::string>& expected) {
  const std::vector<std::string> lines = Lines(csv);
  REQUIRE(lines.size() == expected.size() + 1);
  const std::vector<std::string> header = Fields(lines[0]);
  CHECK(header[0] == "sample");
  CHECK(header[1] == "label");
  uint64_t right = 0;
  for (size_t row = 0; row < expected.size(); ++row) {
    const std::vector<std::string> fields = Fields(lines[row + 1]);
    REQUIRE(fields.size() == header.size());
    double sum = 0, largest = 0;
    for (size_t c = 2; c < fields.size(); ++c) {
      sum += std::stod(fields[c]);
      largest = std::max(largest, std::stod(fields[c]));
      if (header[c] == fields[1]) CHECK(std::stod(fields[c]) == doctest::Approx(largest));
    }
    CHECK(sum == doctest::Approx(1).epsilon(1e-4));  // six digits of each
    right += fields[1] == expected[row] ? 1 : 0;
  }
  return right;
}

// data/train.csv and data/test.csv, and rows.csv: the test rows without their label, other columns
// first. Returns the test rows' labels.
std::vector<std::string> WriteTables(const TempFolder& temp) {
  fs::create_directory(temp.File("data"));
  std::vector<std::string> labels;
  for (const char* name : {"data/train.csv", "data/test.csv"}) {
    std::ofstream file(temp.File(name)), rows(temp.File("rows.csv"));
    file << "species,mass,island\n";
    rows << "island,mass\n";
    labels.clear();
    for (int n = 0; n < 90; ++n) {
      labels.emplace_back(n % 3 == 0 ? "Adelie" : "Gentoo");
      const int mass = n % 11 + (n % 3 == 0 ? 0 : 4);  // they overlap: some are taken wrongly
      const char* island = n % 2 == 0 ? "Dream" : "Biscoe";
      file << labels.back() << "," << mass << "," << island << "\n";
      rows << island << "," << mass << "\n";
    }
  }
  return labels;
}

TEST_CASE("the labels of a table's rows are as often right as evaluate says") {
  TempFolder temp;
  const std::vector<std::string> expected = WriteTables(temp);
  const std::string data = temp.File("data");
  const std::string run = temp.File("run");
  Ran(temp, {"train",
             "--run-dir",
             run,
             "--dataset",
             "csv",
             "--data",
             data,
             "--label",
             "species",
             "--model",
             "mlp",
             "--steps",
             "30",
             "--global-batch",
             "20",
             "--workers",
             "1",
             "--servers",
             "1",
             "--snapshot-every",
             "10",
             "--set",
             "snapshot.keep=9"});
  const uint64_t correct = CountCorrect(temp, run);
  CHECK(correct > 45);
  CHECK(correct < 90);
  const std::string rows = temp.File("rows.csv");
  const std::string from_run = Ran(temp, {"predict", run, rows});
  CHECK(RightRows(from_run, expected) == correct);
  CHECK(Fields(Lines(from_run)[90])[0] == "90");
  const std::string at_step = Ran(temp, {"predict", run, rows, "--step", "10"});
  const auto evaluated =
      nlohmann::json::parse(Ran(temp, {"evaluate", run, "--step", "10", "--json"}));
  CHECK(RightRows(at_step, expected) == evaluated.at("correct"));

  // The weights alone, elsewhere, and the data gone.
  const std::string file = temp.File("weights.safetensors");
  fs::copy_file(run + "/final.safetensors", file);
  fs::remove_all(data);
  CHECK(Ran(temp, {"predict", file, rows}) == from_run);
  CHECK(Ran(temp, {"predict", run, rows}) == from_run);
  CHECK(
      Contains(Ran(temp, {"predict", run, rows, "--out", temp.File("out.csv")}), "90 predictions"));
  CHECK(ReadBytes(temp.File("out.csv")) == from_run);

  // Bad input is one clear line.
  CHECK(Contains(Ran(temp, {"predict", file, rows, rows}, kExitUsage), "give one csv file"));
  CHECK(Contains(Ran(temp, {"predict", file, temp.File("none.csv")}, kExitUsage),
                 "none.csv: cannot be"));
  CHECK(Contains(Ran(temp, {"predict", temp.File("none"), rows}, kExitUsage), "cannot open"));
  CHECK(Contains(Ran(temp, {"predict", file, rows, "--out", temp.File("none/out.csv")}, kExitUsage),
                 "cannot create " + temp.File("none/out.csv")));
  CHECK(Contains(Ran(temp, {"predict", file, rows, "--best"}, kExitUsage), "--best chooses from"));
}

TEST_CASE(
    "the labels of photographs, and of digits in files, are as often right as evaluate says") {
  TempFolder temp;
  const std::string data = temp.File("data");
  std::vector<std::string> expected;
  for (const char* folder : {"train/0", "train/1", "val/0", "val/1"}) {
    fs::create_directories(data + "/" + folder);
    for (uint64_t n = 0; n < 20; ++n) {
      std::vector<uint8_t> pixels(size_t{kDigitSide} * kDigitSide);
      const bool is_train = folder[0] == 't';
      DrawDigit(is_train ? Split::kTrain : Split::kTest, 10 * n + (folder[is_train ? 6 : 4] - '0'),
                pixels);
      const std::string path = fmt::format("{}/{}/{:02}.png", data, folder, n);
      REQUIRE(WritePng(path, {pixels.data(), kDigitSide, kDigitSide, 1}).ok());
      if (!is_train) expected.emplace_back(folder + 4);
    }
  }
  const Args mlp{"--model", "mlp", "--global-batch", "8", "--serial"};
  const std::string photographs = temp.File("photographs");
  Ran(temp, Args{"train", "--run-dir", photographs, "--dataset", "imagefolder", "--data", data,
                 "--resize", "24", "--steps", "3"} +
                mlp);
  const std::string labels = Ran(temp, {"predict", photographs, data + "/val"});
  CHECK(RightRows(labels, expected) == CountCorrect(temp, photographs));
  CHECK(Fields(Lines(labels)[21])[0] == data + "/val/1/00.png");

  const std::string digits = temp.File("digits");
  Ran(temp, Args{"train", "--run-dir", digits, "--dataset", "synthetic-digits", "--steps", "6",
                 "--set", "data.synthetic_test_samples=64"} +
                mlp);
  expected.clear();
  Args predict{"predict", digits};
  for (uint64_t n = 0; n < 64; ++n) {
    std::vector<uint8_t> pixels(size_t{kDigitSide} * kDigitSide);
    DrawDigit(Split::kTest, n, pixels);
    predict.push_back(temp.File(fmt::format("{}.png", n)));
    REQUIRE(WritePng(predict.back(), {pixels.data(), kDigitSide, kDigitSide, 1}).ok());
    expected.push_back(fmt::format("{}", DigitLabel(n)));
  }
  CHECK(RightRows(Ran(temp, predict), expected) == CountCorrect(temp, digits));
}

}  // namespace
}  // namespace pando
