#include "tests/e2e/run_files.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "common/exit_codes.h"
#include "run/run_folder.h"

namespace pando {

Args operator+(Args left, const Args& right) {
  for (const std::string& flag : right) {
    const auto same = std::ranges::find(left, flag);
    const bool is_flag = flag.starts_with("--") && flag != "--set";
    if (!is_flag || same == left.end()) continue;
    const auto value = std::next(same);
    const bool has_value = value != left.end() && !value->starts_with("--");
    left.erase(same, has_value ? std::next(value) : value);
  }
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Args TinyJob(const Args& more) {
  return Args{"--model",        "mnist-cnn",
              "--dataset",      "synthetic-digits",
              "--set",          "data.synthetic_train_samples=" + std::to_string(kTinyTrainSamples),
              "--set",          "data.synthetic_test_samples=500",
              "--global-batch", "128",
              "--optimizer",    "adam",
              "--lr",           "0.01",
              "--schedule",     "one-cycle"} +
         more;
}

Args LongJob(uint64_t steps, const Args& more) {
  return TinyJob({"--steps", std::to_string(steps), "--set", "eval.every_epochs=0"}) + more;
}

std::string AverageIn(const std::string& folder, const std::string& run_dir) {
  const std::string path = folder + "/average.safetensors";
  Process exporting(folder, "export", {"export", run_dir, path, "--ema"});
  exporting.Await();
  REQUIRE_MESSAGE(exporting.exit_code() == kExitCompleted, exporting.err());
  return ReadBytes(path);
}

Summary SummaryIn(const std::string& run_dir) {
  Result<Summary> summary = RunFolder::Open(run_dir).ReadSummary();
  REQUIRE_MESSAGE(summary.ok(), summary.status().message());
  return *std::move(summary);
}

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::vector<std::string> RowsIn(const std::string& run_dir) {
  std::vector<std::string> rows;
  std::istringstream text(ReadBytes(RunFolder::Open(run_dir).MetricsPath()));
  for (std::string row; std::getline(text, row);) {
    if (row.ends_with(",,")) rows.push_back(row);
  }
  return rows;
}

size_t RowCountIn(const std::string& run_dir) { return RowsIn(run_dir).size(); }

std::vector<std::string> TrainingColumnsIn(const std::string& run_dir) {
  constexpr int kColumnCount = 5;
  std::vector<std::string> rows = RowsIn(run_dir);
  for (std::string& row : rows) {
    size_t end = 0;
    for (int column = 0; column < kColumnCount; ++column) end = row.find(',', end) + 1;
    row.resize(end - 1);
  }
  return rows;
}

}  // namespace pando
