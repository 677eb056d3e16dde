// What the benchmarks of training make of command lines, of metrics and of samples.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "bench/step/step.h"
#include "bench/training/line_tail.h"
#include "bench/training/pando_program.h"
#include "bench/training/step_rows.h"
#include "bench/training/train_flags.h"
#include "bench/training/training_points.h"
#include "bench/training/workload.h"
#include "tests/temp_folder.h"

namespace pando::bench {
namespace {

constexpr const char* kHeading =
    "step,epoch,loss,accuracy,lr,images_per_second,elapsed_seconds,data_stall_ms,gpu_memory_mb,"
    "gpu_percent,exposed_sync_ms";

std::string Row(uint64_t step, const std::string& elapsed_s, const std::string& sync_ms) {
  return std::to_string(step) + ",0.1,2.3,0.1,0.01,100," + elapsed_s + ",0.0,0.0,0.0," + sync_ms;
}

bool HasWords(const std::vector<std::string>& words, const std::vector<std::string>& part) {
  return std::ranges::search(words, part).begin() != words.end();
}

TEST_CASE("a line that is not whole yet is taken when it is") {
  const TempFolder folder;
  const std::string path = folder.path() + "/log";
  LineTail tail(path);
  CHECK(tail.Take().empty());  // no file yet
  std::ofstream file(path);
  file << "one\ntw" << std::flush;
  CHECK(tail.Take() == std::vector<std::string>{"one"});
  CHECK(tail.Take().empty());
  file << "o\n\nfour\n" << std::flush;
  CHECK(tail.Take() == std::vector<std::string>{"two", "", "four"});
}

TEST_CASE("a pace leaves out the first row, whose step began before it") {
  StepRows rows;
  REQUIRE(rows.Add(kHeading).ok());
  // Steps 0 to 4, a second each but the first; the second and the third came in one batch.
  for (const auto& [step, at, sync] :
       std::vector<std::tuple<uint64_t, const char*, const char*>>{{0, "5.0", "900"},
                                                                   {1, "6.0", "10"},
                                                                   {2, "8.0", "20"},
                                                                   {3, "8.0", "30"},
                                                                   {4, "9.0", "40"}}) {
    REQUIRE(rows.Add(Row(step, at, sync)).ok());
  }
  const Pace pace = PaceBetween(rows.rows(), 0, 4);
  CHECK(pace.step_count == 4);
  CHECK(pace.seconds == 4.0);
  CHECK(pace.steps_per_s() == 1.0);
  CHECK(pace.exposed_sync_ms == 25.0);
  CHECK(PaceBetween(rows.rows(), 1, 2).steps_per_s() == 0.5);
}

TEST_CASE("rows are read by the names of their columns; others are errors that repeat them") {
  StepRows rows;
  REQUIRE(rows.Add("exposed_sync_ms,step,elapsed_seconds").ok());
  REQUIRE(rows.Add("1.5,7,2.25").ok());
  CHECK(rows.rows().front().step == 7);
  CHECK(rows.rows().front().elapsed_s == 2.25);
  CHECK(rows.rows().front().exposed_sync_ms == 1.5);
  for (const char* bad : {"", "1.5,7", "1.5,x,2.25", "1.5,7,2.25s", "1.5,-7,2"}) {
    CAPTURE(bad);
    const Status status = rows.Add(bad);
    REQUIRE(!status.ok());
    CHECK(status.code() == StatusCode::kCorrupt);
    CHECK(status.message().find("'" + std::string(bad) + "'") != std::string::npos);
  }
  StepRows of_another_release;
  REQUIRE(of_another_release.Add("step,elapsed_seconds").ok());
  CHECK(!of_another_release.Add("1,2").ok());
}

TEST_CASE("where no folder has a model's data, pictures of its size are drawn") {
  const TempFolder folder;
  const Result<Workload> digits = FindWorkload("mnist-cnn", 0, {folder.path()});
  REQUIRE(digits.ok());
  CHECK(digits->is_synthetic());
  CHECK(digits->worker_batch == 128);
  CHECK(digits->Flags() ==
        std::vector<std::string>{"--model", "mnist-cnn", "--dataset", "synthetic-digits"});
  const Result<Workload> small = FindWorkload("resnet18-cifar", 16, {folder.path()});
  REQUIRE(small.ok());
  CHECK(small->worker_batch == 16);
  CHECK(HasWords(small->Flags(), {"--dataset", "synthetic-imagenet", "--resize", "32"}));
  CHECK(small->DataText() == "synthetic-imagenet (drawn)");
}

TEST_CASE("real data are found under the names that people give their folders") {
  const TempFolder folder;
  const std::string cifar = folder.path() + "/cifar-10-batches-bin";
  std::filesystem::create_directories(cifar);
  for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                           "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
    std::ofstream(cifar + "/" + name) << "x";
  }
  const Result<Workload> workload = FindWorkload("resnet18-cifar", 0, {"/nowhere", folder.path()});
  REQUIRE(workload.ok());
  CHECK(!workload->is_synthetic());
  CHECK(workload->worker_batch == 32);
  CHECK(workload->Flags() == std::vector<std::string>{"--model", "resnet18-cifar", "--dataset",
                                                      "cifar10", "--data", cifar});
}

TEST_CASE("a model that the zoo does not have is an error that repeats it") {
  const Result<Workload> workload = FindWorkload("resnet19", 0, {});
  REQUIRE(!workload.ok());
  CHECK(workload.status().code() == StatusCode::kInvalidArgument);
  CHECK(workload.status().message().find("'resnet19'") != std::string::npos);
}

TEST_CASE("the program is looked for where it was named, or it is said where it was not") {
  CHECK(*FindPando("/bin/sh") == "/bin/sh");
  for (const char* bad : {"/nowhere/pando", "/tmp", "/etc/passwd"}) {
    const Result<std::string> program = FindPando(bad);
    REQUIRE(!program.ok());
    CHECK(program.status().message().find(bad) != std::string::npos);
    CHECK(program.status().message().find("--program") != std::string::npos);
  }
}

TEST_CASE("command lines: servers only where there are any, a micro-batch for each worker") {
  TrainPlan plan{.workload = {.model = "mnist-cnn", .data_set = "mnist", .data_path = "d"},
                 .strategy = "ps",
                 .workers = 3,
                 .servers = 2,
                 .replicas = 2,
                 .transport = "ipc",
                 .global_batch = 384};
  const std::vector<std::string> ps = TrainWords(plan, "/run");
  CHECK(HasWords(ps, {"--global-batch", "384", "--micro-batches", "3"}));
  CHECK(HasWords(ps, {"--workers", "3"}));
  CHECK(HasWords(ps, {"--transport", "ipc"}));
  CHECK(HasWords(ps, {"--servers", "2", "--replicas", "2"}));
  CHECK(HasWords(ps, {"--run-dir", "/run"}));
  CHECK(!HasWords(ps, {"-v"}));
  CHECK(plan.process_count() == 5);
  plan.strategy = "allreduce";
  CHECK(!HasWords(TrainWords(plan, "/run"), {"--servers"}));
  CHECK(!HasWords(TrainWords(plan, "/run"), {"--transport"}));
  CHECK(plan.process_count() == 3);
  plan = {.workload = plan.workload, .strategy = "single", .global_batch = 128, .is_verbose = true};
  const std::vector<std::string> single = TrainWords(plan, "/run");
  CHECK(!HasWords(single, {"--workers"}));
  CHECK(HasWords(single, {"--micro-batches", "1"}));
  CHECK(HasWords(single, {"-v"}));
}

StepOptions TwoModels() {
  StepOptions options;
  options.workloads = {{.model = "mnist-cnn", .data_set = "mnist", .worker_batch = 128},
                       {.model = "resnet18-cifar", .data_set = "cifar10", .worker_batch = 32}};
  return options;
}

TEST_CASE("a baseline has as many processes as the point has workers, each with a worker's batch") {
  const std::vector<StepPoint> points = StepPoints(TwoModels(), 2);
  // Local; ps over 2 transports with 1 and 2 replicas; allreduce.
  REQUIRE(points.size() == 2 * (1 + 4 + 1));
  std::set<std::string> names;
  std::string baseline;
  for (const StepPoint& point : points) {
    CAPTURE(point.point.name);
    CHECK(names.insert(point.point.name).second);
    uint32_t workers = 0, batch = 0;
    for (const TrainPlan& plan : point.plans) {
      workers += plan.workers;
      batch += plan.global_batch;
      CHECK(plan.servers >= plan.replicas);
    }
    CHECK(workers == 2);
    CHECK(batch == 2 * point.plans.front().workload.worker_batch);
    if (point.baseline.empty()) {
      baseline = point.point.name;
      REQUIRE(point.plans.size() == 2);
      CHECK(point.plans[0].strategy == "single");
      CHECK(point.plans[0].seed != point.plans[1].seed);
    }
    CHECK((point.baseline.empty() || point.baseline == baseline));
    CHECK(point.point.is_oversubscribed == (point.plans[0].strategy == "ps"));
  }
}

// Points with these images/s, in the order of StepPoints.
std::vector<Point> Measured(const std::vector<StepPoint>& asked,
                            const std::vector<std::vector<double>>& samples) {
  std::vector<Point> points;
  for (size_t i = 0; i < asked.size(); ++i) {
    points.push_back(asked[i].point);
    for (const double sample : samples[i]) points.back().Add(kImagesPerS, "1/s", sample);
  }
  return points;
}

TEST_CASE("what a step loses is taken against the same round's baseline") {
  StepOptions options = TwoModels();
  options.workloads.resize(1);
  options.transports = {"tcp"};
  options.replicas = {1};
  const std::vector<StepPoint> asked = StepPoints(options, 8);
  REQUIRE(asked.size() == 3);
  std::vector<Point> points = Measured(asked, {{100, 200}, {90, 190}, {80, 210}});
  AddExposed(asked, &points);
  CHECK(points[0].Find(kExposed) == nullptr);
  CHECK(points[1].SamplesOf(kExposed)[0] == doctest::Approx(10.0));
  CHECK(points[1].SamplesOf(kExposed)[1] == doctest::Approx(5.0));
  CHECK(points[2].SamplesOf(kExposed)[0] == doctest::Approx(20.0));
  CHECK(points[2].SamplesOf(kExposed)[1] == doctest::Approx(-5.0));  // noise is shown

  ResultSet set = NewResultSet("step", "t", {});
  set.points = points;
  AddStepSummaries(options, asked, &set);
  REQUIRE(set.tables.size() == 1);
  REQUIRE(set.tables[0].rows.size() == 3);
  CHECK(set.tables[0].rows[0][2] == "local update");
  CHECK(set.tables[0].rows[0][4] == "-");
  CHECK(set.tables[0].rows[1][2] == "ps tcp, 1 server, 1 replica");
  CHECK(set.tables[0].rows[1][4] == "7.5");
  CHECK(set.tables[0].rows[1][7] == "8");  // the aim
  CHECK(set.tables[0].rows[2][7] == "-");
  REQUIRE(set.plots.size() == 1);
  CHECK(set.plots[0].series.size() == 2);
  CHECK(set.plots[0].x_axis == PlotAxis::kCount);
}

}  // namespace
}  // namespace pando::bench
