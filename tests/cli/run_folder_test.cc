#include "cli/run_folder.h"

#include <doctest/doctest.h>
#include <fcntl.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/job_file.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

Job JobIn(const std::string& run_dir) {
  Job job;
  job.run_dir = run_dir;
  ResolveRunNames(std::chrono::system_clock::now(), &job);
  return job;
}

void Touch(const std::string& path) { std::ofstream(path) << "x"; }

TEST_CASE("a run folder starts with the resolved job and a place for logs") {
  TempFolder temp;
  const Job job = JobIn(temp.path() + "/runs/first");
  Result<RunFolder> folder = RunFolder::Create(job, /*is_forced=*/false);
  REQUIRE(folder.ok());
  CHECK(job.name == "first");
  CHECK(fs::is_directory(folder->path() + "/logs"));
  CHECK(folder->LogPath("worker-1") == folder->path() + "/logs/worker-1.log");
  CHECK(*ReadTextFile(folder->JobPath()) == WriteJobText(job));
}

TEST_CASE("an existing run folder is refused, and forced only its own files go") {
  TempFolder temp;
  const Job job = JobIn(temp.path() + "/run");
  REQUIRE(RunFolder::Create(job, false).ok());
  Touch(job.run_dir + "/summary.json");
  Touch(job.run_dir + "/logs/worker-7.log");
  Touch(job.run_dir + "/notes.txt");
  Touch(job.run_dir + "/logs/notes.txt");

  Result<RunFolder> refused = RunFolder::Create(job, false);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().code() == StatusCode::kAlreadyExists);
  CHECK(refused.status().message().find("--force") != std::string::npos);
  CHECK(fs::exists(job.run_dir + "/summary.json"));

  REQUIRE(RunFolder::Create(job, true).ok());
  CHECK_FALSE(fs::exists(job.run_dir + "/summary.json"));
  CHECK_FALSE(fs::exists(job.run_dir + "/logs/worker-7.log"));
  CHECK(fs::exists(job.run_dir + "/notes.txt"));
  CHECK(fs::exists(job.run_dir + "/logs/notes.txt"));
  CHECK(fs::exists(job.run_dir + "/job.toml"));
}

TEST_CASE("a folder of somebody else's files is refused, an empty one taken, a file never") {
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

TEST_CASE("metrics are rows under their heading, there at once") {
  TempFolder temp;
  const RunFolder folder = RunFolder::Open(temp.path());
  Result<MetricsFile> metrics = MetricsFile::Create(folder);
  REQUIRE(metrics.ok());
  REQUIRE(metrics
              ->Append({.step = 12,
                        .epoch = 0.5,
                        .loss = 0.25,
                        .accuracy = 0.875,
                        .lr = 0.01,
                        .images_per_second = 31200.4,
                        .elapsed_seconds = 1.5})
              .ok());
  CHECK(*ReadTextFile(folder.MetricsPath()) ==
        "step,epoch,loss,accuracy,lr,images_per_second,elapsed_seconds\n"
        "12,0.5,0.25,0.875,0.01,31200.4,1.500\n");
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

TEST_CASE("times are written as RFC 3339") {
  const auto time =
      std::chrono::system_clock::from_time_t(1'000'000'000) + std::chrono::milliseconds(7);
  CHECK(UtcText(time) == "2001-09-09T01:46:40.007Z");
}

TEST_CASE("the summary has every promised key and survives reading") {
  TempFolder temp;
  const RunFolder folder = RunFolder::Open(temp.path());
  Summary summary = SummaryOf(Job{});
  summary.status = kStatusCompleted;
  summary.weights_hash = "99aa06d3014798d86001c324468d497f";
  summary.test_accuracy = 0.9866;
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
  Result<Summary> read = folder.ReadSummary();
  REQUIRE(read.ok());
  CHECK(ToJson(*read) == ToJson(summary));
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
