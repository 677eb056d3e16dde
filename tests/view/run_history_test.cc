#include "view/run_history.h"

#include <doctest/doctest.h>

#include <fmt/core.h>

#include <cmath>

namespace pando {
namespace {

using Json = nlohmann::json;

std::string StepText(uint64_t step) {
  return fmt::format("{},0.5,2.5,0.1,0.01,900,800,1.25,3.5,0.25,0.75,0.0,0.0,,", step);
}

TEST_CASE("rows of steps differ from those of evaluations") {
  const CsvRow step = ParseCsvRow(StepText(7));
  REQUIRE(step.step);
  CHECK_FALSE(step.evaluation);
  CHECK((*step.step)[kCellStep] == 7);
  CHECK((*step.step)[kCellLoss] == 2.5);
  CHECK((*step.step)[kCellStepMs] == 3.5);
  const CsvRow evaluation = ParseCsvRow("8,1.5,,,,,,9.25,,,,,,0.875,0.5");
  REQUIRE(evaluation.evaluation);
  CHECK(*evaluation.evaluation == EvaluatedRow{8, 1.5, 9.25, 0.875, 0.5});
}

TEST_CASE("what is no row gives none") {
  for (const char* text : {"", "step,epoch,loss", "1,2,3", "x,0.5,2,0,0,0,0,0,1,0,0,0,0,,",
                           "1,0.5,2,0,0,0,0,0,1,0,0,0,0,", ",,,,,,,,,,,,,,"}) {
    CAPTURE(text);
    const CsvRow row = ParseCsvRow(text);
    CHECK_FALSE(row.step);
    CHECK_FALSE(row.evaluation);
  }
}

TEST_CASE("the means of a program's sums come with their names, and what it did not log is null") {
  RunHistory history;
  std::string heading;
  for (const char* column : kStepColumns) heading.append(column).append(",");
  history.Add(ParseCsvRow(heading + "test_accuracy,test_loss,test_mae,test_top_1"));
  history.Add(ParseCsvRow("8,1.5,,,0.1,900,800,9.25,2,0,0,0,0,,,,"));
  history.Add(ParseCsvRow("8,1.5,,,,,,9.5,,,,,,,0.5,0.125,3"));
  RunHistory::Mark mark;
  Json update;
  history.Tell(&mark, &update);
  CHECK(update["means"] == Json{"mae", "top_1"});
  CHECK(update["evaluations"].dump() == "[[8.0,1.5,9.5,null,0.5,0.125,3.0]]");
  CHECK(update["rows"][0][kCellLoss].is_null());
  CHECK(update["rows"][0][kCellAccuracy].is_null());
}

TEST_CASE("a step's row ends with what its program logged, by the heading's names") {
  RunHistory history;
  std::string heading;
  for (const char* column : kStepColumns) heading.append(column).append(",");
  history.Add(ParseCsvRow(heading + "test_accuracy,test_loss,test_mae,d_loss,g_loss"));
  CHECK(history.names().means == std::vector<std::string>{"mae"});
  CHECK(history.names().logged == std::vector<std::string>{"d_loss", "g_loss"});
  history.Add(ParseCsvRow("8,1.5,,,0.1,900,800,9.25,2,0,0,0,0,,,,0.75,", 2));
  history.Add(ParseCsvRow("8,1.5,,,,,,9.5,,,,,,,0.5,0.125,,", 2));
  RunHistory::Mark mark;
  Json update;
  history.Tell(&mark, &update);
  CHECK(update["logged"] == Json{"d_loss", "g_loss"});
  CHECK(update["rows"][0].size() == kPageCells.size() + 2);
  CHECK(update["rows"][0][kPageCells.size()] == 0.75);
  CHECK(update["rows"][0].back().is_null());
  CHECK(update["evaluations"].dump() == "[[8.0,1.5,9.5,null,0.5,0.125]]");
}

TEST_CASE("a reader gets each row once, and a loss that is no number as null") {
  RunHistory history;
  history.Add(ParseCsvRow(StepText(1)));
  history.AddEvent({{"event", "training"}});
  RunHistory::Mark mark;
  Json update;
  history.Tell(&mark, &update);
  CHECK(update["rows"].size() == 1);
  CHECK(update["events"].size() == 1);
  CHECK_FALSE(update.contains("evaluations"));
  history.Add(ParseCsvRow("2,0.5,nan,0.1,0.01,900,800,1.25,3.5,0.25,0.75,0.0,0.0,,"));
  update = Json();
  history.Tell(&mark, &update);
  REQUIRE(update["rows"].size() == 1);
  CHECK(update["rows"][0][kCellStep] == 2);
  CHECK(update["rows"][0][kCellLoss].is_null());
  update = Json();
  history.Tell(&mark, &update);
  CHECK(update.is_null());
}

TEST_CASE("of a million rows a bounded number is kept: the first, the newest, evenly between") {
  Thinned<uint64_t> rows(1000);
  constexpr uint64_t kCount = 1'000'000;
  for (uint64_t i = 0; i < kCount; ++i) rows.Add(i);
  const std::vector<uint64_t> kept = rows.Since(0);
  CHECK(kept.size() >= 500);
  CHECK(kept.size() <= 1001);
  CHECK(kept.front() == 0);
  CHECK(kept.back() == kCount - 1);
  const uint64_t stride = kept[1] - kept[0];
  for (size_t i = 2; i + 1 < kept.size(); ++i) CHECK(kept[i] - kept[i - 1] == stride);
  CHECK(rows.Since(kCount).empty());
  CHECK(rows.Since(kCount - 1) == std::vector<uint64_t>{kCount - 1});
}

TEST_CASE("an update has few of the new rows, the newest among them") {
  RunHistory history;
  RunHistory::Mark mark;
  Json update;
  history.Add(ParseCsvRow(StepText(1)));
  history.Tell(&mark, &update);
  for (uint64_t step = 2; step <= 101; ++step) history.Add(ParseCsvRow(StepText(step)));
  history.Tell(&mark, &update);
  REQUIRE(update["rows"].size() == RunHistory::kNewRowsMax);
  CHECK(update["rows"][0][kCellStep] == 21);
  CHECK(update["rows"].back()[kCellStep] == 101);
}

TEST_CASE("events are the newest ones") {
  RunHistory history;
  RunHistory::Mark mark;
  for (size_t i = 0; i < RunHistory::kEventsMax + 5; ++i) history.AddEvent({{"elapsed_ms", i}});
  Json update;
  history.Tell(&mark, &update);
  CHECK(update["events"].size() == RunHistory::kEventsMax);
  CHECK(update["events"][0]["elapsed_ms"] == 5);
}

}  // namespace
}  // namespace pando
