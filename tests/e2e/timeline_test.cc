// The timeline of a run one of whose workers is killed, and of a group's: every process is in it,
// a dead one's part included, on one clock, and of its steps nothing that a computing thread did is
// left out.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/timeline/timeline_file.h"
#include "plan/tensor_layout.h"
#include "tests/e2e/fault_run.h"

namespace pando {
namespace {

using Json = nlohmann::json;

// Share of the run's steps: a row reaches the scheduler some 20 ms after its step.
constexpr double kCoverageMin = 0.95;
// Error for one and the same clock: half a round trip on a loaded machine.
constexpr double kClockErrorMaxNs = 1e8;

struct Span {
  std::string name;
  uint64_t step = 0;
  double begin_us = 0;
  double end_us = 0;
  uint64_t bytes = 0;  // if the event has it
};

// From the beginning of the first of them to the end of the last.
struct Window {
  explicit Window(const std::vector<Span>& spans)
      : begin_us(spans.front().begin_us), end_us(spans.back().end_us) {}
  double begin_us;
  double end_us;
};

struct Trace {
  std::map<std::string, std::map<std::string, std::vector<Span>>> tracks;  // by process, thread
  std::map<std::string, std::vector<double>> marks;                        // by name: when
};

Trace Read(const std::string& path) {
  std::ifstream file(path);
  const Json json = Json::parse(file);
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  Trace trace;
  for (const Json& event : json.at("traceEvents")) {
    const std::string phase = event.at("ph");
    const int pid = event.at("pid"), tid = event.at("tid");
    if (event.at("name") == "process_name") processes[pid] = event.at("args").at("name");
    if (event.at("name") == "thread_name") threads[{pid, tid}] = event.at("args").at("name");
    if (phase == "i") trace.marks[event.at("name")].push_back(event.at("ts"));
    if (phase != "X") continue;
    const double begin_us = event.at("ts");
    const double end_us = begin_us + event.at("dur").get<double>();
    const Json& args = event.at("args");
    trace.tracks[processes.at(pid)][threads.at({pid, tid})].push_back(
        {event.at("name"), args.at("step"), begin_us, end_us, args.value("bytes", uint64_t{0})});
  }
  return trace;
}

std::set<std::string> NamesIn(const std::vector<Span>& spans) {
  std::set<std::string> names;
  for (const Span& span : spans) names.insert(span.name);
  return names;
}

void CheckCovered(const std::vector<Span>& spans, const Window& window) {
  double covered_us = 0, end_us = 0;
  for (const Span& span : spans) {
    CHECK(span.begin_us >= end_us - 0.001);  // times have three digits
    end_us = span.end_us;
    covered_us += std::max(
        0.0, std::min(span.end_us, window.end_us) - std::max(span.begin_us, window.begin_us));
  }
  CHECK(covered_us >= kCoverageMin * (window.end_us - window.begin_us));
}

// Those computed in one go first, in the model that the transport asks for.
std::string FirstLayers() {
  const bool mlp = std::ranges::count(TransportOfFaults(), "mlp") > 0;
  return mlp ? "fc1 relu1" : "conv1 pool1 relu1";
}

using Tracks = std::map<std::string, std::vector<Span>>;

// Layer by layer.
void CheckComputing(const Tracks& tracks, const std::string& first_layers) {
  const std::set<std::string> computed = NamesIn(tracks.at("compute 0"));
  for (const std::string& name :
       {first_layers + " forward", first_layers + " backward", std::string("fc2 forward"),
        std::string("fc2 backward"), std::string("wait for parameters"),
        std::string("sum gradients")}) {
    CAPTURE(name);
    CHECK(computed.contains(name));
  }
}

// Checks a worker's life that computed the window's steps.
void CheckWorker(const Tracks& tracks, const Window& window) {
  CheckCovered(tracks.at("compute 0"), window);
  CheckComputing(tracks, FirstLayers());
  const std::set<std::string> protocol = NamesIn(tracks.at("protocol"));
  CHECK(protocol.contains("push"));
  CHECK(protocol.contains("pull"));
}

TEST_CASE("a run's trace has every process, a killed one's part, faults, views and no gaps") {
  Household household;
  const std::string path = household.path() + "/trace.json";
  const Args slow{"--global-batch", "256"};  // the second life is to find steps left
  Process train(household.path(), "train",
                Args{"train", "--run-dir", household.run_dir(), "--timeline-filename", path,
                     "--timeline-steps", "10:590", "--chaos", "kill worker 0 at step 50"} +
                    FaultJob(2, 2, slow));
  train.Await(2 * kEventDeadline);
  INFO(train.err());
  REQUIRE(train.exit_code() == kExitCompleted);
  CHECK(SummaryIn(household.run_dir()).weights_hash == SerialHash(kFaultSteps, slow));
  CHECK(Contains(train.err(), "pando: timeline of 6 processes"));

  const Trace trace = Read(path);
  REQUIRE(trace.marks.at("fault injected").size() == 1);
  const double killed_us = trace.marks.at("fault injected")[0];
  const std::vector<Span>& steps = trace.tracks.at("scheduler").at("run");
  const Window run(steps);
  Window first_life = run, second_life = run;
  first_life.end_us = killed_us;
  second_life.begin_us = trace.tracks.at("worker 0, life 2").at("compute 0").front().begin_us;
  CheckWorker(trace.tracks.at("worker 0"), first_life);
  CheckWorker(trace.tracks.at("worker 0, life 2"), second_life);
  CheckWorker(trace.tracks.at("worker 1"), run);
  for (const char* server : {"server 0", "server 1"}) {
    const std::set<std::string> served = NamesIn(trace.tracks.at(server).at("lane 0"));
    CHECK(served == std::set<std::string>{"aggregate", "update", "replicate", "commit", "reply"});
    CHECK(NamesIn(trace.tracks.at(server).at("lane 0 replicates")) ==
          std::set<std::string>{"root to commit"});
  }
  CHECK(steps.size() == 580);
  for (const Span& step : steps) CHECK(step.end_us > step.begin_us);
  for (const auto& [process, tracks] : trace.tracks) {
    for (const auto& [track, spans] : tracks) {
      for (const Span& span : spans) CHECK((span.step >= 10 && span.step < 590));
    }
  }
  // The dead worker's events are before it was killed; its next life came after.
  CHECK(trace.tracks.at("worker 0").at("compute 0").front().begin_us < killed_us);
  CHECK(trace.tracks.at("worker 0, life 2").at("compute 0").front().begin_us > killed_us);
  CHECK(trace.marks.at("fault noticed").at(0) >= killed_us);
  CHECK(trace.marks.at("view").size() >= 2);  // without it, and with it again

  // The same from the folder, later; and its processes have measured the scheduler's clock.
  const std::string again = household.path() + "/again.json";
  Process timeline(household.path(), "timeline", {"timeline", household.run_dir(), "--out", again});
  timeline.Await();
  REQUIRE(timeline.exit_code() == kExitCompleted);
  CHECK(ReadBytes(again) == ReadBytes(path));
  size_t measured = 0;
  for (const auto& entry : std::filesystem::directory_iterator(household.run_dir() + "/timeline")) {
    Result<TimelineFile> file = ReadTimelineFile(entry.path().string());
    REQUIRE(file.ok());
    for (const TimelineTrackRecords& track : file->tracks) {
      if (track.name != "clock") continue;
      ++measured;
      CHECK(std::abs(static_cast<double>(track.records.at(0).duration_ns)) < kClockErrorMaxNs);
    }
  }
  CHECK(measured >= 4);  // servers and first workers
}

#ifdef PANDO_HAS_GLOO
// One sum of each bucket in each step, of all gradients together.
void CheckSums(const std::vector<Span>& exchange, const std::vector<Span>& steps,
               uint64_t gradient_bytes) {
  constexpr uint64_t kPaddingMax = 9 * 64;  // 8 tensors and the metrics each begin at 64 bytes
  std::map<uint64_t, std::map<std::string, uint64_t>> bytes;  // by step and bucket
  for (const Span& span : exchange) {
    if (!span.name.starts_with("allreduce of bucket ")) continue;
    CHECK(bytes[span.step].emplace(span.name, span.bytes).second);
  }
  CHECK(bytes.size() == steps.size());
  for (const auto& [step, of_buckets] : bytes) {
    uint64_t sum = 0;
    for (const auto& [name, of_bucket] : of_buckets) sum += of_bucket;
    CHECK(sum >= gradient_bytes);
    CHECK(sum < gradient_bytes + kPaddingMax);
  }
}

TEST_CASE("a group's trace has what each rank computes, sums and updates, and its waits") {
  Household household;
  const std::string path = household.path() + "/trace.json";
  Process train(household.path(), "train",
                Args{"train", "--run-dir", household.run_dir(), "--timeline", path,
                     "--timeline-steps", "10:590"} +
                    LongJob(kFaultSteps, {"--strategy", "allreduce", "--workers", "2"}));
  train.Await(2 * kEventDeadline);
  INFO(train.err());
  REQUIRE(train.exit_code() == kExitCompleted);
  CHECK(Contains(train.err(), "pando: timeline of 3 processes"));

  const Trace trace = Read(path);
  const std::vector<Span>& steps = trace.tracks.at("scheduler").at("run");
  CHECK(steps.size() == 580);
  const uint64_t floats = SummaryIn(household.run_dir()).parameter_count + kMetricSlotCount;
  for (const std::string rank : {"worker 0", "worker 1"}) {
    CAPTURE(rank);
    const Tracks& tracks = trace.tracks.at(rank);
    CheckCovered(tracks.at("compute 0"), Window(steps));
    CheckComputing(tracks, "conv1 pool1 relu1");
    CheckCovered(tracks.at("exchange"), Window(steps));
    CHECK(NamesIn(tracks.at("exchange")).contains("wait for gradients"));
    CheckSums(tracks.at("exchange"), steps, floats * sizeof(float));
  }
  const std::set<std::string> lane = NamesIn(trace.tracks.at("worker 0").at("lane 0"));
  CHECK(lane == std::set<std::string>{"aggregate", "update", "commit", "reply"});
  CHECK(NamesIn(trace.tracks.at("worker 1").at("protocol")).contains("update"));
}
#endif

TEST_CASE("a serial run has a timeline too, and a run without the flag has none") {
  TempFolder temp;
  const std::string path = temp.path() + "/trace.json";
  Process serial(
      temp.path(), "serial",
      Args{"train", "--serial", "--run-dir", temp.path() + "/serial", "--timeline", path} +
          TinyJob());
  serial.Await();
  INFO(serial.err());
  REQUIRE(serial.exit_code() == kExitCompleted);
  const Trace trace = Read(path);
  const std::vector<Span>& computing = trace.tracks.at("serial").at("compute 0");
  CheckCovered(computing, Window(computing));
  CHECK(NamesIn(computing).contains("evaluate"));
  Process plain(temp.path(), "plain",
                Args{"train", "--serial", "--run-dir", temp.path() + "/plain"} + TinyJob());
  plain.Await();
  REQUIRE(plain.exit_code() == kExitCompleted);
  CHECK_FALSE(std::filesystem::exists(temp.path() + "/plain/timeline"));
}

TEST_CASE("wrong bounds of a timeline, or a timeline that cannot be made, are errors") {
  TempFolder temp;
  const auto error_of = [&](const Args& args) {
    Process process(temp.path(), "bad", args);
    process.Await();
    CHECK(process.exit_code() == kExitUsage);
    return process.err();
  };
  CHECK(Contains(error_of({"train", "--timeline", "t.json", "--timeline-steps", "7"}),
                 "run.timeline_steps = \"7\" (--timeline-steps): expected A:B"));
  CHECK(Contains(error_of({"train", "--timeline-steps", "3:7"}), "give --timeline FILE"));
  CHECK(Contains(error_of(Args{"train", "--timeline", temp.path() + "/none/t.json"} + TinyJob()),
                 "/none/t.json: its folder does not exist"));
  CHECK(Contains(error_of({"timeline", temp.path(), "--out", temp.path() + "/t.json"}),
                 "holds no timeline; train with --timeline FILE"));
}

}  // namespace
}  // namespace pando
