#include "common/timeline/timeline.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "tests/contains.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

Timeline::Options OptionsIn(const TempFolder& folder) {
  return {.folder = folder.path() + "/timeline",
          .process = "worker 1",
          .incarnation = 0xabcd,
          .host = "here",
          .steps = {}};
}

std::string PathIn(const TempFolder& folder) {
  return folder.path() + "/timeline/worker-1-000000000000abcd.bin";
}

std::unique_ptr<Timeline> Make(const Timeline::Options& options) {
  Result<std::unique_ptr<Timeline>> timeline = Timeline::Create(options);
  REQUIRE_MESSAGE(timeline.ok(), timeline.status().message());
  return *std::move(timeline);
}

TimelineFile Read(const std::string& path) {
  Result<TimelineFile> file = ReadTimelineFile(path);
  REQUIRE_MESSAGE(file.ok(), file.status().message());
  return *std::move(file);
}

void Patch(const std::string& path, size_t offset, const std::string& bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(file.good());
}

std::string ReadError(const std::string& path) {
  const Status status = ReadTimelineFile(path).status();
  CHECK(status.code() == StatusCode::kCorrupt);
  CHECK(status.message().starts_with(path + ": "));
  return status.message();
}

TEST_CASE("a range of steps is A:B, either of which may be left out") {
  const auto is = [](const char* text, uint64_t first, uint64_t last) {
    const std::optional<StepRange> range = ParseStepRange(text);
    return range && range->first == first && range->last == last;
  };
  CHECK(is("", 0, UINT64_MAX));
  CHECK(is("3:7", 3, 7));
  CHECK(is("3:", 3, UINT64_MAX));
  CHECK(is(":7", 0, 7));
  CHECK(is(":", 0, UINT64_MAX));
  for (const char* text : {"3", "7:3", "3:3", "0:0", "a:b", "3:7:9", "-1:7", "3: 7", "1.5:2"}) {
    CAPTURE(text);
    CHECK_FALSE(ParseStepRange(text).has_value());
  }
  CHECK(ParseStepRange("3:7")->Has(Step(6)));
  CHECK_FALSE(ParseStepRange("3:7")->Has(Step(7)));
  CHECK_FALSE(ParseStepRange("3:7")->Has(Step(2)));
}

TEST_CASE("what threads add is read back, by track") {
  TempFolder folder;
  std::unique_ptr<Timeline> timeline = Make(OptionsIn(folder));
  const TimelineNameId forward = timeline->Name({"conv \"1\" forward", "compute", "micro_batch"});
  CHECK(timeline->Name({"conv \"1\" forward", "compute", "micro_batch"}) == forward);
  CHECK(timeline->Name({"conv \"1\" forward", "compute", "shard"}) != forward);
  // More than a chunk takes, of two threads at once.
  const auto count = static_cast<uint32_t>(kRecordsPerChunk + 3);
  const auto add = [&](const char* name, int64_t duration_ns) {
    TimelineTrack& track = timeline->OpenTrack(name);
    for (uint32_t i = 0; i < count; ++i)
      track.AddSpan(forward, 100 * i, 100 * i + duration_ns, Step(5), i);
  };
  std::thread other([&] { add("compute 1", 20); });
  add("compute 0", 10);
  other.join();
  timeline.reset();
  const TimelineFile file = Read(PathIn(folder));
  CHECK(file.process == "worker 1");
  CHECK(file.host == "here");
  CHECK_FALSE(file.boot.empty());
  CHECK(file.head.process_id == static_cast<uint32_t>(getpid()));
  CHECK(file.head.lost_count == 0);
  REQUIRE(file.tracks.size() == 2);
  for (const TimelineTrackRecords& track : file.tracks) {
    REQUIRE(track.records.size() == count);
    for (uint32_t i = 0; i < count; ++i) {
      const TimelineRecord& record = track.records[i];
      CHECK(record.begin_ns == 100 * i);
      CHECK(record.duration_ns == (track.name == "compute 0" ? 10 : 20));
      CHECK(record.number == i);
      CHECK(record.step == 5);
    }
  }
  const TimelineName& name = file.names[forward.value()];
  CHECK(name.text == "conv \"1\" forward");
  CHECK(name.category == "compute");
  CHECK(name.number == "micro_batch");
}

TEST_CASE("at its bound a timeline stops, and counts what it does not take") {
  TempFolder folder;
  Timeline::Options options = OptionsIn(folder);
  options.bytes_max = kChunksOffset + 2 * kChunkBytes + kChunkBytes / 2;
  std::unique_ptr<Timeline> timeline = Make(options);
  TimelineTrack& track = timeline->OpenTrack("compute 0");
  const size_t room = 2 * kRecordsPerChunk;
  for (size_t i = 0; i < room + 7; ++i) track.AddSpan({}, 0, 1, Step(0), 0);
  CHECK(timeline->lost_count() == 7);
  const TimelineFile file = Read(PathIn(folder));  // while it is being written, too
  CHECK(file.head.lost_count == 7);
  REQUIRE(file.tracks.size() == 1);
  CHECK(file.tracks[0].records.size() == room);
}

TEST_CASE("names beyond the table's room share one, and the tracks go on") {
  TempFolder folder;
  std::unique_ptr<Timeline> timeline = Make(OptionsIn(folder));
  const std::string prefix(1000, 'x');
  size_t known = 0;
  TimelineNameId last(1);
  while (last != TimelineNameId(0))
    last = timeline->Name({prefix + std::to_string(known++), "", ""});
  CHECK(known > kNamesBytesMax / 1100);
  TimelineTrack& track = timeline->OpenTrack(prefix + "track");
  track.AddSpan(last, 0, 1, Step(0), 0);
  timeline.reset();
  const TimelineFile file = Read(PathIn(folder));
  REQUIRE(file.tracks.size() == 1);
  CHECK(file.names[file.tracks[0].records[0].name].text == "(the table of names is full)");
}

TEST_CASE("what a process had written that is killed is there") {
  TempFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    auto timeline = Timeline::Create(OptionsIn(folder));
    if (!timeline.ok()) _exit(1);
    TimelineTrack& track = (*timeline)->OpenTrack("compute 0");
    for (uint32_t i = 0; i < 5; ++i) track.AddSpan({}, i, i + 1, Step(i), i);
    kill(getpid(), SIGKILL);
  }
  int wait_status = 0;
  REQUIRE(waitpid(child, &wait_status, 0) == child);
  REQUIRE(WIFSIGNALED(wait_status));
  const TimelineFile file = Read(PathIn(folder));
  REQUIRE(file.tracks.size() == 1);
  REQUIRE(file.tracks[0].records.size() == 5);
  CHECK(file.tracks[0].records[4].step == 4);
  CHECK(file.head.process_id == static_cast<uint32_t>(child));
}

TEST_CASE("a null track takes nothing, and a span on a track lasts as long as its block") {
  TempFolder folder;
  std::unique_ptr<Timeline> timeline = Make(OptionsIn(folder));
  TimelineTrack& track = timeline->OpenTrack("protocol");
  const int64_t before = TimelineNow();
  { const TimelineTrack::Span none(nullptr, {}, Step(0), 0); }
  { const TimelineTrack::Span span(&track, {}, Step(3), 9); }
  const int64_t after = TimelineNow();
  const TimelineFile file = Read(PathIn(folder));
  REQUIRE(file.tracks.size() == 1);
  REQUIRE(file.tracks[0].records.size() == 1);
  const TimelineRecord& record = file.tracks[0].records[0];
  CHECK(record.begin_ns >= before);
  CHECK(record.begin_ns + record.duration_ns <= after);
  CHECK(record.number == 9);
}

TEST_CASE("a file that is cut short, damaged or something else is named, with the place") {
  TempFolder folder;
  const std::string path = PathIn(folder);
  std::unique_ptr<Timeline> timeline = Make(OptionsIn(folder));
  timeline->OpenTrack("compute 0").AddSpan({}, 0, 1, Step(0), 0);
  timeline.reset();
  std::ifstream stream(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(stream)), {});
  const auto rewrite = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  };
  CHECK(whole.size() == kChunksOffset + kChunkBytes);
  for (const size_t size : {kChunksOffset + kChunkBytes - 1, kChunksOffset - 1, kNamesOffset}) {
    rewrite(whole.substr(0, size));
    CHECK(Contains(ReadError(path), "is cut short: has " + std::to_string(size) + " bytes"));
  }
  rewrite(whole.substr(0, 20));
  CHECK(Contains(ReadError(path), "is not a timeline of a Pando process"));
  rewrite("");
  CHECK(Contains(ReadError(path), "is not a timeline of a Pando process"));
  rewrite(whole);
  Patch(path, kNamesOffset, "\xff\xff\xff\xff");
  CHECK(Contains(ReadError(path), "its table of names is damaged"));
  rewrite(whole);
  Patch(path, kChunksOffset, "\xff\xff");
  CHECK(Contains(ReadError(path), "the chunk at byte 1048576"));
  rewrite(whole);
  Patch(path, kChunksOffset + sizeof(TimelineChunkHead) + offsetof(TimelineRecord, name), "\x07");
  CHECK(Contains(ReadError(path), "the record at byte 1048592 is damaged"));
  CHECK(ReadTimelineFile(folder.path() + "/none").status().message().find("/none") !=
        std::string::npos);
}

TEST_CASE("a folder that cannot be made is named") {
  TempFolder folder;
  Timeline::Options options = OptionsIn(folder);
  std::ofstream(folder.path() + "/file") << "x";
  options.folder = folder.path() + "/file/timeline";
  const Status status = Timeline::Create(options).status();
  CHECK(Contains(status.message(), options.folder));
}

}  // namespace
}  // namespace pando
