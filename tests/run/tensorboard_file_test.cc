#include "run/output/tensorboard_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "job/job_file.h"
#include "tests/file_size_limit.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

struct Curves {
  TempFolder temp;
  RunFolder folder = RunFolder::Open(temp.path());
  Job job;

  TensorBoardFile Create() {
    Result<TensorBoardFile> file = TensorBoardFile::Create(folder, job);
    REQUIRE(file.ok());
    return *std::move(file);
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(temp.path()))
      names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
  // The events of the first file; each record's check sums are right.
  std::vector<std::string> Events() const {
    const Result<std::string> text = ReadTextFile(temp.path() + "/" + Names().at(0));
    REQUIRE(text.ok());
    std::vector<std::string> events;
    for (size_t at = 0; at < text->size();) {
      uint64_t size = 0;
      REQUIRE(at + 16 <= text->size());
      std::memcpy(&size, text->data() + at, 8);
      REQUIRE(at + 16 + size <= text->size());
      CHECK(NumberAt(*text, at + 8) == MaskedCrc32c(text->substr(at, 8)));
      events.push_back(text->substr(at + 12, size));
      CHECK(NumberAt(*text, at + 12 + size) == MaskedCrc32c(events.back()));
      at += 16 + size;
    }
    return events;
  }
  static uint32_t NumberAt(const std::string& text, size_t at) {
    uint32_t number = 0;
    std::memcpy(&number, text.data() + at, 4);
    return number;
  }
};

bool Has(const std::string& event, std::string_view text) {
  return event.find(text) != std::string::npos;
}

MetricsRow RowAt(uint64_t step, double seconds) {
  return {.step = step, .loss = 0.5, .elapsed_seconds = seconds};
}

TEST_CASE("a file begins as TensorFlow's own do") {
  // The first bytes of any file that TensorFlow has written: the size of the first event.
  using namespace std::string_view_literals;
  CHECK(MaskedCrc32c("\x18\0\0\0\0\0\0\0"sv) == 0x224b7fa3);
  Curves curves;
  curves.Create();
  const std::vector<std::string> events = curves.Events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].size() == 0x18);
  CHECK(
      events[0].ends_with("\x1a\x0d"
                          "brain.Event:2"));
  CHECK(Has(events[1], "_hparams_/session_start_info"));
  CHECK(Has(events[1], "optimizer.lr"));
  CHECK_FALSE(Has(events[1], "run.workers"));  // decides no weight
}

TEST_CASE("rows of one moment are one point, and the last row is one") {
  Curves curves;
  TensorBoardFile file = curves.Create();
  for (uint64_t step = 1; step <= 30; ++step)
    file.Append(RowAt(step, static_cast<double>(step) * 0.015));
  file.Append(EvaluationRow{.step = 30, .test_accuracy = 0.9});
  file.End(/*has_completed=*/true);
  const std::vector<std::string> events = curves.Events();
  std::vector<int> steps;
  for (const std::string& event : events) {
    if (Has(event, "train/loss")) steps.push_back(event.at(10));  // behind the time and field 2
  }
  CHECK(steps == std::vector<int>{1, 8, 15, 22, 29, 30});
  const auto evaluations = [](const std::string& event) { return Has(event, "test/accuracy"); };
  CHECK(std::ranges::count_if(events, evaluations) == 1);
  CHECK(Has(events.back(), "_hparams_/session_end_info"));
}

TEST_CASE("each life of a scheduler has a file, which sorts behind the earlier ones") {
  Curves curves;
  curves.Create();
  const std::vector<std::string> first = curves.Names();
  curves.Create();
  const std::vector<std::string> both = curves.Names();
  REQUIRE(both.size() == 2);
  CHECK(both[0] == first[0]);
}

TEST_CASE("on a full disk points wait, and no record is cut") {
  Curves curves;
  TensorBoardFile file = curves.Create();
  const auto bytes = std::filesystem::file_size(curves.temp.path() + "/" + curves.Names()[0]);
  {
    const FileSizeLimit limit(bytes + 20);
    for (uint64_t step = 1; step < 4; ++step) file.Append(RowAt(step, static_cast<double>(step)));
  }
  CHECK(curves.Events().size() == 2);
  file.End(/*has_completed=*/false);
  CHECK(curves.Events().size() == 2 + 3 + 1);
}

}  // namespace
}  // namespace pando
