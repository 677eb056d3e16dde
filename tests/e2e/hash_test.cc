// Invariant I5 through real processes: the weights are the serial trainer's, bit for bit, whatever
// the number of workers, servers and threads, over TCP and over ipc. A shortened form of
// hash_matrix.sh.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/exit_codes.h"
#include "tests/e2e/run_files.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

// A finished run and what it left.
struct Run {
  Summary summary;
  std::vector<std::string> rows;
  std::string weights;  // the bytes of final.safetensors
};

Run Train(const Args& more) {
  TempFolder temp;
  const std::string run_dir = temp.path() + "/run";
  Process train(
      temp.path(), "train",
      // A busy machine may starve a process for longer than the default lease.
      Args{"train", "--json", "--run-dir", run_dir, "--set", "run.lease_ms=20000"} + TinyJob(more));
  train.Await();
  INFO(train.err());
  REQUIRE(train.exit_code() == kExitCompleted);
  const auto printed = nlohmann::json::parse(train.out(), nullptr, /*allow_exceptions=*/false);
  REQUIRE_MESSAGE(!printed.is_discarded(),
                  "standard output is not one JSON object: " << train.out());
  Run run{SummaryIn(run_dir), TrainingColumnsIn(run_dir), BytesOf(run_dir + "/final.safetensors")};
  CHECK(printed["weights_hash"] == run.summary.weights_hash);
  return run;
}

void CheckCompleted(const Run& run, uint32_t micro_batches, uint64_t seed) {
  const Summary& summary = run.summary;
  CHECK(summary.status == kStatusCompleted);
  CHECK(summary.failure.empty());
  CHECK(summary.weights_hash.size() == 32);
  CHECK(summary.steps == kTinySteps);
  CHECK(summary.epochs == 1.0);
  CHECK(summary.micro_batches == micro_batches);
  CHECK(summary.seed == seed);
  CHECK(summary.model == "mnist-cnn");
  CHECK(summary.dataset == "synthetic-digits");
  CHECK(summary.parameter_count == 21840);
  CHECK(summary.images_per_second > 0);
  CHECK(summary.wall_seconds > 0);
  REQUIRE(summary.test_accuracy.has_value());
  REQUIRE(summary.train_loss.has_value());
  CHECK(run.rows.size() == kTinySteps);
  CHECK(run.weights.size() > 21840 * sizeof(float));
}

void CheckSameResult(const Run& run, const Run& serial) {
  CHECK(run.summary.weights_hash == serial.summary.weights_hash);
  CHECK(run.weights == serial.weights);
  CHECK(run.rows == serial.rows);
  CHECK(run.summary.test_accuracy == serial.summary.test_accuracy);
  CHECK(run.summary.test_loss == serial.summary.test_loss);
  CHECK(run.summary.job_hash == serial.summary.job_hash);
}

struct Form {
  uint32_t workers;
  uint32_t servers;
  uint32_t threads;
  const char* transport;
  const char* lanes = "0";  // by cores
};

Args ArgsOf(const Form& form) {
  return {"--workers",   std::to_string(form.workers),
          "--servers",   std::to_string(form.servers),
          "--threads",   std::to_string(form.threads),
          "--transport", form.transport,
          "--set",       std::string("run.lanes=") + form.lanes};
}

TEST_CASE("weights, metrics and accuracy are the serial run's for any workers, servers, threads") {
  const Run serial = Train({"--serial"});
  CheckCompleted(serial, 8, 1);
  CHECK(serial.summary.workers == 0);
  CheckSameResult(Train({"--serial", "--threads", "2"}), serial);
  constexpr Form kForms[] = {{1, 1, 1, "tcp"}, {2, 2, 1, "tcp"},      {3, 2, 1, "ipc"},
                             {5, 3, 2, "tcp"}, {2, 1, 2, "ipc", "3"}, {5, 1, 1, "ipc"},
                             {1, 3, 2, "ipc"}, {3, 3, 1, "tcp", "2"}};
  for (const Form& form : kForms) {
    CAPTURE(form.workers);
    CAPTURE(form.servers);
    CAPTURE(form.threads);
    CAPTURE(form.transport);
    const Run run = Train(ArgsOf(form));
    CheckCompleted(run, 8, 1);
    CHECK(run.summary.workers == form.workers);
    CHECK(run.summary.servers == form.servers);
    CHECK(run.summary.threads == form.threads);
    CheckSameResult(run, serial);
  }
}

TEST_CASE(
    "another number of micro-batches or another seed gives other weights, the same everywhere") {
  const Run eight = Train({"--serial"});
  const Run six = Train({"--serial", "--micro-batches", "6"});
  CheckCompleted(six, 6, 1);
  CHECK(six.summary.weights_hash != eight.summary.weights_hash);
  CheckSameResult(Train(Args{"--micro-batches", "6"} + ArgsOf({5, 2, 1, "tcp"})), six);
  const Run seeded = Train({"--serial", "--seed", "2"});
  CheckCompleted(seeded, 8, 2);
  CHECK(seeded.summary.weights_hash != eight.summary.weights_hash);
  CheckSameResult(Train(Args{"--seed", "2"} + ArgsOf({3, 1, 1, "ipc"})), seeded);
}

}  // namespace
}  // namespace pando
