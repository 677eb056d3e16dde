#include "run/timeline_trace.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/timeline/timeline.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

using Json = nlohmann::json;

// A run folder with timelines whose heads say what the test wants.
class TracedRun {
 public:
  struct Machine {
    std::string boot = "boot-a";
    int64_t steady_ns = 0;
    int64_t unix_ns = 0;
  };
  std::unique_ptr<Timeline> Process(const std::string& name, uint64_t incarnation,
                                    StepRange steps = {}, uint64_t bytes_max = 8 << 20) {
    auto timeline = Timeline::Create({.folder = folder_.path() + "/timeline",
                                      .process = name,
                                      .incarnation = incarnation,
                                      .host = "host",
                                      .steps = steps,
                                      .bytes_max = bytes_max});
    REQUIRE(timeline.ok());
    return *std::move(timeline);
  }
  // Puts the machine of the process whose file has this name.
  void Put(const std::string& file_name, const Machine& machine) {
    std::fstream file(folder_.path() + "/timeline/" + file_name,
                      std::ios::in | std::ios::out | std::ios::binary);
    TimelineHead head;
    file.read(reinterpret_cast<char*>(&head), sizeof(head));
    head.boot = {};
    std::copy(machine.boot.begin(), machine.boot.end(), head.boot.begin());
    head.steady_ns = machine.steady_ns;
    head.unix_ns = machine.unix_ns;
    file.seekp(0);
    file.write(reinterpret_cast<const char*>(&head), sizeof(head));
    REQUIRE(file.good());
  }
  Json Trace() {
    Result<TraceSummary> summary = WriteTrace({folder_.path()}, path());
    REQUIRE_MESSAGE(summary.ok(), summary.status().message());
    summary_ = *summary;
    std::ifstream file(path());
    return Json::parse(file);
  }
  std::string path() const { return folder_.path() + "/trace.json"; }
  std::string folder() const { return folder_.path(); }
  const TraceSummary& summary() const { return summary_; }

 private:
  TempFolder folder_;
  TraceSummary summary_;
};

std::vector<Json> FindEvents(const Json& trace, const std::string& phase) {
  std::vector<Json> events;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) events.push_back(event);
  }
  return events;
}

// Names of processes in the order of the trace.
std::vector<std::string> ProcessesIn(const Json& trace) {
  std::vector<std::string> names;
  for (const Json& event : FindEvents(trace, "M")) {
    if (event.at("name") == "process_name") names.push_back(event.at("args").at("name"));
  }
  return names;
}

void CheckNoOverlaps(const Json& trace) {
  std::map<std::pair<int, int>, double> end;
  for (const Json& event : FindEvents(trace, "X")) {
    double& last = end[{event.at("pid"), event.at("tid")}];
    CHECK(event.at("ts").get<double>() >= last);
    last = event.at("ts").get<double>() + event.at("dur").get<double>();
  }
}

TEST_CASE("a span has its name, times, step and number, for any bytes of the name") {
  TracedRun run;
  {
    auto timeline = run.Process("worker 0", 1);
    TimelineTrack& track = timeline->OpenTrack("compute \"0\"\\\n");
    const auto odd = timeline->Name({"a\"b\\c\td\xff\x01 forward", "compute", "micro_batch"});
    track.AddSpan(odd, 5'000'001'500, 5'000'003'750, Step(12), 3);
    track.AddSpan(odd, 5'000'004'000, 5'000'004'001, Step(13), 0);
  }
  const Json trace = run.Trace();
  const std::vector<Json> spans = FindEvents(trace, "X");
  REQUIRE(spans.size() == 2);
  CHECK(run.summary().span_count == 2);
  CHECK(run.summary().process_count == 1);
  CHECK(spans[0].at("name") == "a\"b\\c\td\xEF\xBF\xBD\x01 forward");
  CHECK(spans[0].at("cat") == "compute");
  CHECK(spans[0].at("ts").get<double>() == 0);
  CHECK(spans[0].at("dur").get<double>() == doctest::Approx(2.25));
  CHECK(spans[1].at("ts").get<double>() == doctest::Approx(2.5));
  CHECK(spans[1].at("dur").get<double>() == doctest::Approx(0.001));
  CHECK(spans[0].at("args").at("step") == 12);
  CHECK(spans[0].at("args").at("micro_batch") == 3);
  CHECK(trace.at("otherData").at("warnings").empty());
}

TEST_CASE("spans that overlap are never on one row") {
  TracedRun run;
  {
    auto timeline = run.Process("server 0", 1);
    TimelineTrack& track = timeline->OpenTrack("lane 0");
    const auto name = timeline->Name({"root to commit", "replicate", "shard"});
    for (int64_t i = 0; i < 6; ++i)
      track.Add({.begin_ns = 10'000 * i,
                 .duration_ns = 25'000,
                 .name = name.value(),
                 .kind = TimelineKind::kFlow});
    for (int64_t i = 3; i-- > 0;)  // in any order
      track.AddSpan(name, 100'000 + 1000 * i, 101'000 + 1000 * i, Step(0), 0);
  }
  const Json trace = run.Trace();
  CheckNoOverlaps(trace);
  CHECK(FindEvents(trace, "X").size() == 9);
  std::vector<std::string> rows;
  for (const Json& event : FindEvents(trace, "M")) {
    if (event.at("name") == "thread_name") rows.push_back(event.at("args").at("name"));
  }
  CHECK(rows == std::vector<std::string>{"lane 0", "lane 0 (2)", "lane 0 (3)"});
}

TEST_CASE("a worker's exposed synchronisation is a counter: waits for parameters, step by step") {
  TracedRun run;
  {
    auto timeline = run.Process("worker 0", 1);
    const auto wait = timeline->Name({"wait for parameters", "wait", "micro_batch"});
    const auto other_wait = timeline->Name({"wait for samples", "wait", "micro_batch"});
    const auto compute = timeline->Name({"conv1 forward", "compute", "micro_batch"});
    for (const char* thread : {"compute 0", "compute 1"}) {
      TimelineTrack& track = timeline->OpenTrack(thread);
      for (uint64_t step : {4, 5}) {
        const auto begin = static_cast<int64_t>(step) * 10'000'000;
        track.AddSpan(wait, begin, begin + 3'000'000, Step(step), 0);
        track.AddSpan(other_wait, begin + 3'000'000, begin + 4'000'000, Step(step), 0);
        track.AddSpan(compute, begin + 4'000'000, begin + 9'000'000, Step(step), 0);
      }
    }
    TimelineTrack& one = timeline->OpenTrack("protocol");
    one.AddSpan(wait, 41'000'000, 49'000'000, Step(4), 0);  // computes nothing
    timeline->OpenTrack("compute 2").AddSpan(compute, 60'000'000, 61'000'000, Step(6), 0);
  }
  const std::vector<Json> counters = FindEvents(run.Trace(), "C");
  REQUIRE(counters.size() == 3);
  for (const Json& counter : counters) CHECK(counter.at("name") == "exposed_sync_ms");
  CHECK(counters[0].at("ts").get<double>() == 0);
  CHECK(counters[0].at("args").at("ms").get<double>() == doctest::Approx(2.0));  // of three threads
  CHECK(counters[1].at("ts").get<double>() == doctest::Approx(10'000));
  CHECK(counters[2].at("args").at("ms").get<double>() == 0);

  const Result<std::vector<TimelineSum>> sums = SumTimeline({run.folder()});
  REQUIRE(sums.ok());
  REQUIRE(sums->size() == 3);
  CHECK((*sums)[0].name == "conv1 forward");
  CHECK((*sums)[0].category == "compute");
  CHECK((*sums)[0].role == "worker");
  CHECK((*sums)[0].seconds == doctest::Approx(0.021));
  CHECK((*sums)[0].span_count == 5);
  CHECK((*sums)[1].name == "wait for parameters");
  CHECK((*sums)[1].seconds == doctest::Approx(0.020));
  CHECK((*sums)[2].seconds == doctest::Approx(0.004));
}

TEST_CASE("processes stand by role and rank, and one that was started again has several lives") {
  TracedRun run;
  for (const auto& [name, incarnation] : std::vector<std::pair<const char*, uint64_t>>{
           {"worker 10", 1}, {"worker 2", 9}, {"worker 2", 3}, {"server 0", 4}, {"scheduler", 5}}) {
    auto timeline = run.Process(name, incarnation);
    timeline->OpenTrack("t").AddSpan({}, 0, 1, Step(0), 0);
  }
  run.Put("worker-2-0000000000000009.bin", {.steady_ns = 10});
  run.Put("worker-2-0000000000000003.bin", {.steady_ns = 20});
  for (const char* other : {"worker-10-0000000000000001.bin", "server-0-0000000000000004.bin",
                            "scheduler-0000000000000005.bin"})
    run.Put(other, {});
  CHECK(ProcessesIn(run.Trace()) == std::vector<std::string>{"scheduler", "server 0", "worker 2",
                                                             "worker 2, life 2", "worker 10"});
}

TEST_CASE("clocks of other machines are laid beside the scheduler's, drift included") {
  TracedRun run;
  constexpr int64_t kSecond = 1'000'000'000;
  {
    auto scheduler = run.Process("scheduler", 1);
    scheduler->OpenTrack("run").AddSpan({}, 0, 1, Step(0), 0);
    auto worker = run.Process("worker 0", 2);
    TimelineTrack& clock = worker->OpenTrack("clock");
    const uint32_t name = worker->Name({"ahead", "clock", ""}).value();
    for (const auto& [at, ahead] :
         {std::pair{100 * kSecond, 5 * kSecond}, {110 * kSecond, 5 * kSecond + 2000}}) {
      clock.Add({.begin_ns = at, .duration_ns = ahead, .name = name, .kind = TimelineKind::kClock});
    }
    TimelineTrack& track = worker->OpenTrack("compute 0");
    for (const int64_t at : {90 * kSecond, 105 * kSecond, 120 * kSecond})
      track.AddSpan({}, at, at + 1000, Step(0), 0);
  }
  run.Put("scheduler-0000000000000001.bin", {.boot = "a"});
  run.Put("worker-0-0000000000000002.bin", {.boot = "b", .unix_ns = 1});
  const std::vector<Json> spans = FindEvents(run.Trace(), "X");
  REQUIRE(spans.size() == 4);
  CHECK(spans[1].at("ts").get<double>() == doctest::Approx(95e6).epsilon(1e-12));
  CHECK(spans[2].at("ts").get<double>() == doctest::Approx(110e6 + 1).epsilon(1e-12));
  CHECK(spans[3].at("ts").get<double>() == doctest::Approx(125e6 + 2).epsilon(1e-12));
  CHECK(run.summary().warnings.empty());
}

TEST_CASE("a machine without clock measurements uses the time of day, and the trace notes it") {
  TracedRun run;
  for (const char* name : {"scheduler", "worker 0"}) {
    auto timeline = run.Process(name, 1);
    timeline->OpenTrack("t").AddSpan({}, 1000, 2000, Step(0), 0);
  }
  // Half past nine on both: the worker's steady clock is 7 us behind.
  run.Put("scheduler-0000000000000001.bin", {.boot = "a", .steady_ns = 9000, .unix_ns = 50'000});
  run.Put("worker-0-0000000000000001.bin", {.boot = "b", .steady_ns = 2000, .unix_ns = 50'000});
  const std::vector<Json> spans = FindEvents(run.Trace(), "X");
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].at("ts").get<double>() == 0);
  CHECK(spans[1].at("ts").get<double>() == doctest::Approx(7));
  REQUIRE(run.summary().warnings.size() == 1);
  CHECK(run.summary().warnings[0].find("worker 0 on host is placed by its time of day") == 0);
}

TEST_CASE("after a reboot, each part of a run is placed beside its own scheduler") {
  TracedRun run;
  for (const auto& [name, incarnation] : std::vector<std::pair<const char*, uint64_t>>{
           {"scheduler", 1}, {"scheduler", 2}, {"worker 0", 1}, {"worker 0", 2}}) {
    auto timeline = run.Process(name, incarnation);
    timeline->OpenTrack("t").AddSpan({}, 1000, 2000, Step(0), 0);
  }
  // The later scheduler's file comes first by name.
  const TracedRun::Machine before{.boot = "a", .steady_ns = 0, .unix_ns = 10'000};
  const TracedRun::Machine after{.boot = "b", .steady_ns = 0, .unix_ns = 90'000};
  run.Put("scheduler-0000000000000001.bin", after);
  run.Put("scheduler-0000000000000002.bin", before);
  run.Put("worker-0-0000000000000001.bin", before);
  run.Put("worker-0-0000000000000002.bin", after);
  std::vector<double> begins;
  for (const Json& span : FindEvents(run.Trace(), "X")) begins.push_back(span.at("ts"));
  CHECK(begins == std::vector<double>{0, 80, 0, 80});
  CHECK(run.summary().warnings.empty());
}

TEST_CASE("marks are the whole run's; of bounded steps those beside them are left out") {
  for (const bool is_bounded : {false, true}) {
    TracedRun run;
    {
      auto timeline = run.Process("scheduler", 1, is_bounded ? StepRange{3, 7} : StepRange{});
      TimelineTrack& track = timeline->OpenTrack("run");
      track.AddSpan({}, 10'000, 20'000, Step(3), 0);
      for (const int64_t at : {5'000, 15'000, 25'000}) {
        track.Add({.begin_ns = at,
                   .name = timeline->Name({"view", "run", ""}).value(),
                   .number = timeline->Name({"view of " + std::to_string(at), "", ""}).value(),
                   .kind = TimelineKind::kMark});
      }
    }
    const std::vector<Json> marks = FindEvents(run.Trace(), "i");
    REQUIRE(marks.size() == (is_bounded ? 1 : 3));
    const Json& middle = marks[is_bounded ? 0 : 1];
    CHECK(middle.at("name") == "view");
    CHECK(middle.at("s") == "g");
    CHECK(middle.at("args").at("text") == "view of 15000");
    CHECK(middle.at("ts").get<double>() == doctest::Approx(is_bounded ? 5 : 10));
  }
}

TEST_CASE("a trace says what it lacks") {
  TracedRun run;
  {
    auto timeline = run.Process("worker 0", 1, {}, kChunksOffset + kChunkBytes);
    TimelineTrack& track = timeline->OpenTrack("compute 0");
    for (size_t i = 0; i < kRecordsPerChunk + 2; ++i) track.AddSpan({}, 0, 0, Step(0), 0);
  }
  const Json trace = run.Trace();
  REQUIRE(run.summary().warnings.size() == 1);
  CHECK(run.summary().warnings[0].find("lacks its last 2 spans") != std::string::npos);
  CHECK(trace.at("otherData").at("warnings") == run.summary().warnings);
}

TEST_CASE("where there is no timeline, or only a part of one, there is no trace") {
  TracedRun run;
  const Status none = WriteTrace({run.folder()}, run.path()).status();
  CHECK(none.code() == StatusCode::kNotFound);
  CHECK(none.message().find("train with --timeline FILE") != std::string::npos);
  run.Process("worker 0", 1)->OpenTrack("t").AddSpan({}, 0, 1, Step(0), 0);
  const std::string path = run.folder() + "/timeline/worker-0-0000000000000001.bin";
  std::filesystem::resize_file(path, kChunksOffset + 100);
  const Status torn = WriteTrace({run.folder()}, run.path()).status();
  CHECK(torn.code() == StatusCode::kCorrupt);
  CHECK(torn.message().find(path + ": is cut short") == 0);
  CHECK_FALSE(std::filesystem::exists(run.path()));
}

}  // namespace
}  // namespace pando
