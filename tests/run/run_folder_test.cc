#include "run/run_folder.h"
#include "run/output/events_file.h"
#include "run/output/metrics_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <tuple>

#include "common/atomic_file.h"
#include "job/job_file.h"
#include "run/run_lock.h"
#include "tests/contains.h"
#include "tests/data/check_message.h"
#include "tests/file_size_limit.h"
#include "tests/run/job_in.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

void Touch(const std::string& path) { std::ofstream(path) << "x"; }

TEST_CASE("a run folder starts with the resolved job and a place for logs") {
  TempFolder temp;
  const Job job = JobIn(temp.path() + "/runs/first");
  Result<RunFolder> folder = RunFolder::Create(job, /*is_forced=*/false);
  REQUIRE(folder.ok());
  CHECK(job.name == "first");
  CHECK(fs::is_directory(folder->path() + "/logs"));
  CHECK(folder->LogPath("worker-1") == folder->path() + "/logs/worker-1.log");
  Job resolved = job;
  resolved.servers_max = 16;  // the default becomes a value, which the run keeps
  CHECK(*ReadTextFile(folder->JobPath()) == WriteJobText(resolved));
}

TEST_CASE("a run goes on with the job and the data that it began with, wherever the data are") {
  constexpr uint64_t kFingerprint = 0x1234;
  TempFolder temp;
  Job job = JobIn(temp.path() + "/run");
  const RunFolder folder = *RunFolder::Create(job, /*is_forced=*/false);
  CHECK(folder.CheckIdentity(job, kFingerprint).ok());  // of an earlier release
  CHECK_FALSE(ReadTrainSamples(folder));
  const DataFacts data{.train_samples = 48, .fingerprint = kFingerprint};
  REQUIRE(folder.KeepIdentity(job, data).ok());
  CHECK(ReadTrainSamples(folder) == 48);
  job.data_path = "/moved";
  job.workers = 7;
  CHECK(folder.KeepIdentity(job, data).ok());
  CheckMessage(
      folder.CheckIdentity(job, 0x4321), StatusCode::kInvalidArgument,
      {"mnist at /moved is not the data", "0000000000004321", "0000000000001234", "--data"});
  job.servers = 64;  // whose default is another cut
  CheckMessage(folder.CheckIdentity(job, kFingerprint), StatusCode::kInvalidArgument,
               {"run.servers_max is 64", "and was 16"});
  job.servers_max = 16;
  CHECK(folder.CheckIdentity(job, kFingerprint).ok());
  job.optimizer.lr = 0.5;
  CheckMessage(folder.KeepIdentity(job, data), StatusCode::kInvalidArgument,
               {folder.JobPath() + " was changed", "optimizer.lr is 0.5", "and was 0.01"});
  REQUIRE(RunFolder::Create(job, /*is_forced=*/true).ok());
  CHECK(folder.KeepIdentity(job, data).ok());
}

TEST_CASE("an existing run folder is refused, and forced only its own files go") {
  TempFolder temp;
  const Job job = JobIn(temp.path() + "/run");
  REQUIRE(RunFolder::Create(job, false).ok());
  Touch(job.run_dir + "/summary.json");
  Touch(job.run_dir + "/logs/worker-7.log");
  Touch(job.run_dir + "/notes.txt");
  Touch(job.run_dir + "/logs/notes.txt");
  Touch(job.run_dir + "/scheduler.db");
  Touch(job.run_dir + "/snapshots/g000-v000000500.json");
  Touch(job.run_dir + "/snapshots/notes.txt");

  Result<RunFolder> refused = RunFolder::Create(job, false);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().code() == StatusCode::kAlreadyExists);
  CHECK(refused.status().message().find("--force") != std::string::npos);
  CHECK(fs::exists(job.run_dir + "/summary.json"));

  REQUIRE(RunFolder::Create(job, true).ok());
  CHECK_FALSE(fs::exists(job.run_dir + "/summary.json"));
  CHECK_FALSE(fs::exists(job.run_dir + "/logs/worker-7.log"));
  CHECK_FALSE(fs::exists(job.run_dir + "/scheduler.db"));
  CHECK_FALSE(fs::exists(job.run_dir + "/snapshots/g000-v000000500.json"));
  CHECK(fs::exists(job.run_dir + "/snapshots/notes.txt"));
  CHECK(fs::exists(job.run_dir + "/notes.txt"));
  CHECK(fs::exists(job.run_dir + "/logs/notes.txt"));
  CHECK(fs::exists(job.run_dir + "/job.toml"));
}

TEST_CASE(
    "a run's folder is opened again without its summary, and not while a scheduler leads it") {
  TempFolder temp;
  Job job = JobIn(temp.path() + "/run");
  REQUIRE(RunFolder::Create(job, false).ok());
  const std::string before = *ReadTextFile(job.run_dir + "/job.toml");
  Touch(job.run_dir + "/summary.json");
  job.workers = 7;
  {
    const Result<RunLock> lock = RunLock::Acquire(job.run_dir);
    REQUIRE(lock.ok());
    CHECK(RunFolder::Reopen(job).status().code() == StatusCode::kAlreadyExists);
    CHECK(fs::exists(job.run_dir + "/summary.json"));
    CHECK(*ReadTextFile(job.run_dir + "/job.toml") == before);
  }
  const Result<RunFolder> folder = RunFolder::Reopen(job);
  REQUIRE(folder.ok());
  CHECK_FALSE(fs::exists(folder->SummaryPath()));
  job.servers_max = 16;  // the default becomes a value
  CHECK(*ReadTextFile(folder->JobPath()) == WriteJobText(job));
  CHECK(RunFolder::Reopen(job).ok());  // with no summary there
}

TEST_CASE("a folder with other files is refused, an empty one taken, a file never") {
  TempFolder temp;
  CHECK(RunFolder::Create(JobIn(temp.path()), false).ok());
  TempFolder other;
  Touch(other.path() + "/thesis.tex");
  CHECK_FALSE(RunFolder::Create(JobIn(other.path()), false).ok());
  CHECK_FALSE(RunFolder::Create(JobIn(other.path() + "/thesis.tex"), true).ok());
  CHECK_FALSE(RunFolder::Create(JobIn(other.path() + "/thesis.tex/run"), false).ok());
}

TEST_CASE("a run without a name is named after model, data and time") {
  Job job;
  ResolveRunNames(std::chrono::system_clock::from_time_t(1'000'000'000), &job);
  CHECK(job.name == "mnist-cnn-mnist-20010909-014640");
  CHECK(job.run_dir == "runs/mnist-cnn-mnist-20010909-014640");
  Job named;
  named.name = "mine";
  ResolveRunNames(std::chrono::system_clock::now(), &named);
  CHECK(named.run_dir == "runs/mine");
}

const std::string kHeading =
    "step,epoch,loss,accuracy,lr,images_per_second,images_per_second_mean,elapsed_seconds,step_ms,"
    "data_stall_ms,exposed_sync_ms,gpu_memory_mb,gpu_percent,test_accuracy,test_loss\n";

TEST_CASE("metrics are rows under their heading, there at once") {
  TempFolder temp;
  const RunFolder folder = RunFolder::Open(temp.path());
  Result<MetricsFile> metrics = MetricsFile::Create(folder);
  REQUIRE(metrics.ok());
  REQUIRE(metrics
              ->Append(MetricsRow{.step = 12,
                                  .epoch = 0.5,
                                  .loss = 0.25,
                                  .accuracy = 0.875,
                                  .lr = 0.01,
                                  .images_per_second = 31200.4,
                                  .images_per_second_mean = 30100,
                                  .elapsed_seconds = 1.5,
                                  .step_ms = 4.125,
                                  .data_stall_ms = 0.25,
                                  .exposed_sync_ms = 0.125,
                                  .gpu_memory_mb = 5012.25,
                                  .gpu_percent = 97})
              .ok());
  REQUIRE(metrics
              ->Append(EvaluationRow{.step = 12,
                                     .epoch = 0.5,
                                     .elapsed_seconds = 1.625,
                                     .test_accuracy = 0.75,
                                     .test_loss = 1.5})
              .ok());
  CHECK(*ReadTextFile(folder.MetricsPath()) ==
        kHeading +
            "12,0.5,0.25,0.875,0.01,31200.4,30100,1.500,4.125,0.250,0.125,5012.2,97.0,,\n"
            "12,0.5,,,,,,1.625,,,,,,0.75,1.5\n");
  MetricsFile::Last last;
  REQUIRE(MetricsFile::Reopen(folder, &last).ok());
  REQUIRE(last.row);
  CHECK(last.row->step == 12);
  CHECK(last.row->images_per_second_mean == 30100);
  CHECK(last.evaluated_step == 12);
}

TEST_CASE("what a program did not log leaves its cell empty, and its own sums have columns") {
  TempFolder temp;
  const RunFolder folder = RunFolder::Open(temp.path());
  Job job;
  job.model = job.dataset = "external";
  job.eval_sums = {"loss_sum", "mae_sum", "correct", "a,b", "accuracy", "mae"};
  const EvaluationColumns columns = EvaluationColumns::For(job);
  Result<MetricsFile> metrics = MetricsFile::Create(folder, columns);
  REQUIRE(metrics.ok());
  REQUIRE(metrics->Append(MetricsRow{.step = 1, .loss = NAN, .accuracy = NAN}).ok());
  MetricsFile::Last last;
  metrics = MetricsFile::Reopen(folder, &last, columns);
  REQUIRE(metrics.ok());
  CHECK(last.row->step == 1);
  CHECK(std::isnan(last.row->accuracy));
  EvaluationRow evaluation{.step = 1, .test_accuracy = NAN, .test_loss = NAN};
  evaluation.means = {0.5, 2, NAN, 3};
  REQUIRE(metrics->Append(evaluation).ok());
  const std::string heading = kHeading.substr(0, kHeading.size() - 1);
  const std::string rows = "\n1,0,,,0,0,0,0.000,0.000,0.000,0.000,0.0,0.0";
  CHECK(*ReadTextFile(folder.MetricsPath()) ==
        heading + ",test_mae_sum_mean,test_a_b,test_accuracy_mean,test_mae" + rows +
            ",,,,,,\n1,0,,,,,,0.000,,,,,,,,0.5,2,,3\n");
  metrics = MetricsFile::Reopen(folder, &last, columns);
  CHECK(last.row->step == 1);
  CHECK(last.evaluated_step == 1);
  CHECK(ReadNewestRow(folder)->step == 1);

  // A file of an earlier release goes on as it was.
  std::ofstream(folder.MetricsPath()) << heading + rows + ",,\n";
  metrics = MetricsFile::Reopen(folder, &last, columns);
  REQUIRE(metrics.ok());
  CHECK(last.row->step == 1);
  REQUIRE(metrics->Append(evaluation).ok());
  CHECK(*ReadTextFile(folder.MetricsPath()) == heading + rows + ",,\n1,0,,,,,,0.000,,,,,,,\n");
}

TEST_CASE("the means that a program logs are the last columns of a step's row") {
  TempFolder temp;
  const RunFolder folder = RunFolder::Open(temp.path());
  Job job;
  job.model = job.dataset = "external";
  job.train_logs = {"d_loss", "g_loss"};
  const EvaluationColumns columns = EvaluationColumns::For(job);
  Result<MetricsFile> metrics = MetricsFile::Create(folder, columns);
  REQUIRE(metrics.ok());
  REQUIRE(metrics->Append(MetricsRow{.step = 1, .loss = NAN, .logged = {0.5, NAN}}).ok());
  REQUIRE(metrics->Append(EvaluationRow{.step = 1, .test_accuracy = 0.5}).ok());
  const std::string heading = kHeading.substr(0, kHeading.size() - 1);
  CHECK(*ReadTextFile(folder.MetricsPath()) ==
        heading +
            ",d_loss,g_loss\n1,0,,0,0,0,0,0.000,0.000,0.000,0.000,0.0,0.0,,,0.5,\n"
            "1,0,,,,,,0.000,,,,,,0.5,0,,\n");
  MetricsFile::Last last;
  REQUIRE(MetricsFile::Reopen(folder, &last, columns).ok());
  REQUIRE(last.row);
  CHECK(last.row->step == 1);
  CHECK(last.evaluated_step == 1);
}

TEST_CASE("events are one JSON object per line") {
  TempFolder temp;
  const RunFolder folder = RunFolder::Open(temp.path());
  Result<EventsFile> events = EventsFile::Create(folder);
  REQUIRE(events.ok());
  REQUIRE(events->Append("started", {{"workers", 2}}).ok());
  REQUIRE(events->Append("odd", {{"text", "a\n\"b\" \xff"}}).ok());
  std::istringstream lines(*ReadTextFile(folder.EventsPath()));
  std::string line;
  REQUIRE(std::getline(lines, line));
  const auto event = nlohmann::json::parse(line);
  CHECK(event.at("event") == "started");
  CHECK(event.at("details").at("workers") == 2);
  CHECK(event.at("elapsed_ms").is_number());
  CHECK(event.at("time").get<std::string>().size() ==
        std::string("2026-01-31T12:00:00.123Z").size());
  REQUIRE(std::getline(lines, line));
  CHECK(nlohmann::json::parse(line).at("event") == "odd");
  CHECK_FALSE(std::getline(lines, line));
}

// ---- runs that go on ---------------------------------------------------------------------------

void AppendText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

TEST_CASE("metrics go on after the last whole row, and what a crash left is cut") {
  TempFolder temp;
  const RunFolder folder = RunFolder::Open(temp.path());
  REQUIRE(
      MetricsFile::Create(folder)->Append(MetricsRow{.step = 11, .epoch = 0.5, .loss = 2.25}).ok());
  const std::string whole = *ReadTextFile(folder.MetricsPath());
  for (const std::string& torn :
       {std::string(), std::string("12,0.6,0.2"), std::string("12,0.6,0.2\n"), std::string("\n"),
        std::string("12,0.6,0.2,0.1,0.01,100,1.0,0.0x\n"), std::string(100, '\0')}) {
    AppendText(folder.MetricsPath(), torn);
    MetricsFile::Last last;
    REQUIRE(MetricsFile::Reopen(folder, &last).ok());
    REQUIRE(last.row.has_value());
    CHECK(last.row->step == 11);
    CHECK(last.row->loss == 2.25);
    CHECK(*ReadTextFile(folder.MetricsPath()) == whole);
  }
  MetricsFile::Last last;
  REQUIRE(MetricsFile::Reopen(folder, &last)->Append(MetricsRow{.step = 12}).ok());
  REQUIRE(MetricsFile::Reopen(folder, &last).ok());
  CHECK(last.row->step == 12);
  CHECK(ReadTextFile(folder.MetricsPath())->starts_with(whole));
}

TEST_CASE("metrics of a loss that is not finite are rows too") {
  TempFolder temp;
  const RunFolder folder = RunFolder::Open(temp.path());
  REQUIRE(MetricsFile::Create(folder)
              ->Append(MetricsRow{.step = 3, .loss = std::numeric_limits<double>::quiet_NaN()})
              .ok());
  MetricsFile::Last last;
  REQUIRE(MetricsFile::Reopen(folder, &last).ok());
  REQUIRE(last.row.has_value());
  CHECK(last.row->step == 3);
}

TEST_CASE("metrics without a row, a heading or a file start with a heading") {
  TempFolder temp;
  const RunFolder folder = RunFolder::Open(temp.path());
  for (const char* text : {"", "step,epo", "no such heading\n"}) {
    std::ofstream(folder.MetricsPath()) << text;
    MetricsFile::Last last;
    REQUIRE(MetricsFile::Reopen(folder, &last)->Append(MetricsRow{.step = 1}).ok());
    CHECK_FALSE(last.row);
    CHECK(ReadTextFile(folder.MetricsPath())->starts_with("step,epoch,loss"));
    fs::remove(folder.MetricsPath());
  }
  MetricsFile::Last last;
  REQUIRE(MetricsFile::Reopen(folder, &last).ok());
  REQUIRE(MetricsFile::Reopen(folder, &last).ok());
  CHECK(*ReadTextFile(folder.MetricsPath()) == kHeading);
}

TEST_CASE("the last row is found in a file longer than what is read at once") {
  TempFolder temp;
  const std::string path = temp.path() + "/rows";
  std::string row;
  for (int i = 0; i < 200'000; ++i) row += "0123456789\n";
  std::ofstream(path) << row << "last\ntorn";
  std::string last;
  const auto is_sound = [](std::string_view) { return true; };
  REQUIRE(RowFile::Reopen(path, is_sound, &last).ok());
  CHECK(last == "last");
  CHECK(fs::file_size(path) == row.size() + 5);
  CHECK(RowFile::Reopen(temp.path() + "/none/rows", is_sound, &last).status().message() ==
        "cannot open " + temp.path() + "/none/rows: No such file or directory");
}

TEST_CASE("a row that a full disk cuts short leaves nothing, and the next one begins there") {
  TempFolder temp;
  const std::string path = temp.path() + "/rows";
  Result<RowFile> rows = RowFile::Create(path);
  REQUIRE(rows.ok());
  REQUIRE(rows->Append("first\n").ok());
  {
    const FileSizeLimit limit(9);
    CHECK_FALSE(rows->Append("second\n").ok());
  }
  REQUIRE(rows->Append("third\n").ok());
  CHECK(*ReadTextFile(path) == "first\nthird\n");
}

// Milliseconds since the run's start.
int64_t ElapsedMs(const EventsFile& events) {
  const auto elapsed = std::chrono::steady_clock::now() - events.start();
  return std::chrono::duration_cast<std::chrono::milliseconds>(elapsed).count();
}

TEST_CASE("time without a scheduler counts, time without a run does not") {
  TempFolder temp;
  const RunFolder folder = RunFolder::Open(temp.path());
  const auto a_minute_ago = std::chrono::system_clock::now() - std::chrono::minutes(1);
  std::ofstream(folder.EventsPath()) << R"({"time":")" << UtcText(a_minute_ago)
                                     << R"(","elapsed_ms":5000,"event":"rollback","details":{}})"
                                     << "\n{\"time\":";
  constexpr int64_t kSlackMs = 30'000;  // of a busy machine
  Result<EventsFile> restarted = EventsFile::Reopen(folder, EventsFile::Gap::kCounts);
  REQUIRE(restarted.ok());
  CHECK(ElapsedMs(*restarted) >= 64'000);
  CHECK(ElapsedMs(*restarted) < 65'000 + kSlackMs);
  Result<EventsFile> resumed = EventsFile::Reopen(folder, EventsFile::Gap::kIsLeftOut);
  REQUIRE(resumed.ok());
  CHECK(ElapsedMs(*resumed) >= 5'000);
  CHECK(ElapsedMs(*resumed) < 5'000 + kSlackMs);
  REQUIRE(resumed->Append("resumed", {}).ok());
  CHECK(CountEvents(folder, "rollback") == 1);
  CHECK(CountEvents(folder, "resumed") == 1);
}

TEST_CASE("of two schedulers of one folder the second one's error names the first") {
  TempFolder temp;
  {
    Result<RunLock> first = RunLock::Acquire(temp.path());
    REQUIRE(first.ok());
    Result<RunLock> second = RunLock::Acquire(temp.path());
    REQUIRE_FALSE(second.ok());
    CHECK(second.status().code() == StatusCode::kAlreadyExists);
    CHECK(second.status().message().find("process " + std::to_string(getpid()) + " on ") !=
          std::string::npos);
    Result<RunFolder> forced = RunFolder::Create(JobIn(temp.path()), /*is_forced=*/true);
    REQUIRE_FALSE(forced.ok());
    CHECK(forced.status().message() == second.status().message());
  }
  CHECK(RunLock::Acquire(temp.path()).ok());
  CHECK_FALSE(RunLock::Acquire(temp.path() + "/none").ok());
}

TEST_CASE("a lock of a process that is ending is waited for") {
  TempFolder temp;
  std::array<int, 2> locked{}, released{};
  REQUIRE(pipe2(locked.data(), O_CLOEXEC) == 0);
  REQUIRE(pipe2(released.data(), O_CLOEXEC) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {  // its main thread ends, and another one keeps the process
    static Result<RunLock> lock = RunLock::Acquire(temp.path());
    close(released[1]);
    std::thread([from = released[0]] {
      char byte = 0;
      std::ignore = read(from, &byte, 1);
      _exit(0);
    }).detach();
    std::ignore = write(locked[1], lock.ok() ? "+" : "-", 1);
    syscall(SYS_exit, 0);  // of this thread
  }
  close(released[0]);
  char answer = 0;
  REQUIRE(read(locked[0], &answer, 1) == 1);
  REQUIRE(answer == '+');
  const auto is_zombie = [child] {
    std::ifstream status("/proc/" + std::to_string(child) + "/status");
    const std::string text((std::istreambuf_iterator<char>(status)), {});
    return text.find("State:\tZ") != std::string::npos;
  };
  while (!is_zombie()) std::this_thread::yield();
  CHECK(RunLock::Acquire(temp.path(), std::chrono::milliseconds(0)).status().code() ==
        StatusCode::kAlreadyExists);
  std::thread waiting([&] { CHECK(RunLock::Acquire(temp.path()).ok()); });
  close(released[1]);
  waiting.join();
  CHECK(waitpid(child, nullptr, 0) == child);
}

TEST_CASE("times are written as RFC 3339, and read") {
  const auto time =
      std::chrono::system_clock::from_time_t(1'000'000'000) + std::chrono::milliseconds(7);
  CHECK(UtcText(time) == "2001-09-09T01:46:40.007Z");
  CHECK(ParseUtcText("2001-09-09T01:46:40.007Z") == time);
  CHECK_FALSE(ParseUtcText("2001-09-09").has_value());
  CHECK_FALSE(ParseUtcText("2001-09-09T01:46:40.007Z ").has_value());
}

TEST_CASE("the summary has every promised key and survives reading") {
  TempFolder temp;
  const RunFolder folder = RunFolder::Open(temp.path());
  const Job job;
  Summary summary = MakeSummary(job);
  summary.status = kStatusCompleted;
  summary.weights_hash = "99aa06d3014798d86001c324468d497f";
  summary.test_accuracy = 0.9866;
  summary.generation = 1;
  summary.rollbacks = 1;
  summary.verified_micro_batches = 70;
  summary.unverified_micro_batches = 3;
  summary.evaluations = {{Version(469), 10000, 9850, 0.1 + 0.2, 9990}};
  summary.classes = {{1000, 999}, {500, 1}};
  summary.confusion_matrix = {{999, 1}, {499, 1}};
  summary.snapshots = {{0, Version(500)}, {1, Version(1000)}};
  summary.faults = {{.id = 7,
                     .action = "kill",
                     .target = "worker 1",
                     .host = "h",
                     .process_id = 9,
                     .step = Step(100),
                     .injected_ms = 0,
                     .detected_ms = 1.5,
                     .detected_by = "exit",
                     .recovered_ms = 20.25},
                    {.id = 8, .action = "silence", .target = "server 0"}};
  REQUIRE(folder.WriteSummary(summary).ok());
  CHECK_FALSE(fs::exists(folder.SummaryPath() + ".tmp"));
  const auto json = nlohmann::json::parse(*ReadTextFile(folder.SummaryPath()));
  for (const char* key :
       {"weights_hash", "test_accuracy", "train_loss", "images_per_second", "status", "steps",
        "epochs", "wall_seconds", "workers", "servers", "micro_batches", "seed", "dataset", "model",
        "faults", "job_hash", "hostname", "pando_version"}) {
    CAPTURE(key);
    CHECK(json.contains(key));
  }
  CHECK(json.at("train_loss").is_null());
  CHECK(json.at("test_accuracy") == 0.9866);
  CHECK(json.at("workers") == 2);
  CHECK(json.at("verified_micro_batches") == 70);
  CHECK(json.at("unverified_micro_batches") == 3);
  CHECK(json.at("snapshots").dump() ==
        R"([{"generation":0,"step":500},{"generation":1,"step":1000}])");
  CHECK(json.at("faults") == nlohmann::json::parse(R"([
      {"id":7,"action":"kill","target":"worker 1","host":"h","process_id":9,"step":100,
       "injected_ms":0.0,"detected_ms":1.5,"detected_by":"exit","recovered_ms":20.25},
      {"id":8,"action":"silence","target":"server 0","host":"","process_id":0,"step":0,
       "injected_ms":null,"detected_ms":null,"detected_by":null,"recovered_ms":null}])"));
  Result<Summary> read = folder.ReadSummary();
  REQUIRE(read.ok());
  CHECK(ToJson(*read) == ToJson(summary));
  CHECK(read->faults == summary.faults);
}

TEST_CASE("results of validation samples are named so, and read from any release's summary") {
  Summary summary;
  summary.evaluated_on = "validation";
  summary.test_accuracy = 0.5;
  summary.best_test_accuracy = 0.75;
  summary.test_loss = 2;
  const auto json = nlohmann::json::parse(ToJson(summary));
  CHECK(json.at("validation_accuracy") == 0.5);
  CHECK(json.at("best_validation_accuracy") == 0.75);
  CHECK(json.at("validation_loss") == 2);
  CHECK(json.at("test_accuracy").is_null());
  CHECK(SummaryFromJson(ToJson(summary), "new")->best_test_accuracy == 0.75);
  const auto old = SummaryFromJson(
      R"({"status": "completed", "evaluated_on": "validation", "test_accuracy": 0.25})", "old");
  CHECK(old->test_accuracy == 0.25);
  const auto older = SummaryFromJson(
      R"({"status": "failed", "faults": [{"target": "worker 1", "detected_by": null}]})", "older");
  CHECK(older->faults == std::vector{FaultRecord{.target = "worker 1"}});
  const char* bad = R"({"status": "failed", "faults": [{"id": "x"}]})";
  CHECK(Contains(SummaryFromJson(bad, "bad").status().message(), "id: expected a whole number"));
}

TEST_CASE("a summary with numbers that JSON cannot hold is read back") {
  Summary summary;
  summary.images_per_second = INFINITY;
  summary.data_stall_share = NAN;
  summary.test_loss = INFINITY;
  const Result<Summary> read = SummaryFromJson(ToJson(summary), "summary.json");
  REQUIRE_MESSAGE(read.ok(), read.status().message());
  CHECK(read->images_per_second == 0);
  CHECK_FALSE(read->test_loss.has_value());
}

TEST_CASE("a broken summary is named") {
  Result<Summary> summary = SummaryFromJson("{\"status\": 3", "runs/a/summary.json");
  REQUIRE_FALSE(summary.ok());
  CHECK(summary.status().message().starts_with("runs/a/summary.json: "));
}

TEST_CASE("a full disk is one clear error") {
  if (!fs::exists("/dev/full")) {
    MESSAGE("SKIPPED: no /dev/full here");
    return;
  }
  TempFolder temp;
  fs::create_symlink("/dev/full", temp.path() + "/metrics.csv");
  Result<MetricsFile> metrics = MetricsFile::Create(RunFolder::Open(temp.path()));
  REQUIRE_FALSE(metrics.ok());
  CHECK(metrics.status().message() ==
        "cannot write " + temp.path() + "/metrics.csv: No space left on device; free some space");
}

TEST_CASE("a device and a folder are not replaced by a file") {
  TempFolder temp;
  fs::create_directory(temp.path() + "/folder");
  fs::create_symlink("/dev/null", temp.path() + "/link");
  for (const std::string name : {"/folder", "/link"}) {
    const Status status = AtomicFile::Create(temp.path() + name).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(status.message().starts_with("cannot replace " + temp.path() + name + ": it is a "));
    CHECK_FALSE(fs::exists(temp.path() + name + ".tmp"));
  }
  CHECK(AtomicFile::Create("/dev/null").status().message() ==
        "cannot replace /dev/null: it is a device, socket or pipe; give the name of a file");
  CHECK(fs::is_character_file("/dev/null"));
}

TEST_CASE("a file that is not committed leaves nothing") {
  TempFolder temp;
  const std::string path = temp.path() + "/file";
  {
    Result<AtomicFile> file = AtomicFile::Create(path);
    REQUIRE(file.ok());
    const std::string text = "half";
    REQUIRE(file->Write(std::as_bytes(std::span(text))).ok());
  }
  CHECK(fs::is_empty(temp.path()));
  CHECK_FALSE(AtomicFile::Create(temp.path() + "/none/file").ok());
}

}  // namespace
}  // namespace pando
