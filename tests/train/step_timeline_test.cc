#include "train/step_timeline.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "tests/temp_folder.h"

namespace pando {
namespace {

using What = StepTimeline::What;

// Longer than what a span takes at least.
int64_t Spend() {
  const int64_t begin = TimelineNow();
  int64_t now = begin;
  while (now < begin + 5000) now = TimelineNow();
  return now;
}

TEST_CASE("spans of the wanted steps follow each other without a gap, the others are not kept") {
  TempFolder folder;
  auto timeline = Timeline::Create({.folder = folder.path(),
                                    .process = "worker 0",
                                    .host = "",
                                    .steps = {2, 4},
                                    .bytes_max = 8 << 20});
  REQUIRE(timeline.ok());
  StepTimeline thread(timeline->get(), "compute 0");
  int64_t begin_ns = 0, end_ns = 0;
  for (uint64_t step = 0; step < 6; ++step) {
    const int64_t before_ns = Spend();
    thread.Begin(Step(step), 7);
    if (step == 2) begin_ns = before_ns;
    thread.Did(What::kAwaitWork);  // of step 2 too little: what was before is not wanted
    Spend();
    thread.Did(What::kForward);
    thread.Did(What::kScore);  // too little to be kept
    Spend();
    thread.Did(What::kBackward);
    if (step == 3) end_ns = TimelineNow();
  }
  Result<TimelineFile> file =
      ReadTimelineFile(std::filesystem::directory_iterator(folder.path())->path().string());
  REQUIRE(file.ok());
  REQUIRE(file->tracks.size() == 1);
  const std::vector<TimelineRecord>& records = file->tracks[0].records;
  std::vector<std::string> names;
  for (const TimelineRecord& record : records) {
    CHECK(record.number == 7);
    const std::string name = file->names[record.name].text + " " + std::to_string(record.step);
    const bool is_short = name.starts_with("score") || name == "wait for work 2";
    if (!is_short) names.push_back(name);  // it is there where the thread lost its core meanwhile
  }
  CHECK(names == std::vector<std::string>{"forward 2", "backward 2", "wait for work 3", "forward 3",
                                          "backward 3"});
  for (size_t i = 1; i < records.size(); ++i)
    CHECK(records[i].begin_ns == records[i - 1].begin_ns + records[i - 1].duration_ns);
  CHECK(records.front().begin_ns >= begin_ns);
  CHECK(records.back().begin_ns + records.back().duration_ns <= end_ns);
}

TEST_CASE("without a timeline nothing is kept") {
  StepTimeline thread(nullptr, "compute 0");
  thread.Begin(Step(0), 0);
  thread.Did(What::kAwaitWork);
  thread.DidForward(3);  // of no layers
}

}  // namespace
}  // namespace pando
