// Invariant I5 through real processes: the weights are the serial trainer's, bit for bit, for any
// the number of workers, servers and threads, over TCP and over ipc. A shortened form of
// matrices/hash_matrix.sh.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/cpu/cpu_level.h"
#include "common/exit_codes.h"
#include "tests/e2e/job_by_hand.h"
#include "tests/e2e/run_files.h"
#include "tests/golden/golden_path.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

// A finished run and what it left.
struct Run {
  Summary summary;
  std::vector<std::string> rows;
  std::string weights;       // the bytes of final.safetensors
  std::string best_weights;  // of best.safetensors, if there is one
  std::string average;       // of what export --ema writes, where the job keeps an average
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
  Run run{SummaryIn(run_dir),
          TrainingColumnsIn(run_dir),
          ReadBytes(run_dir + "/final.safetensors"),
          ReadBytes(run_dir + "/best.safetensors"),
          {}};
  if (std::ranges::find(more, "--ema-decay") != more.end())
    run.average = AverageIn(temp.path(), run_dir);
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

const Args kLayerResidency{"--set", "worker.parameter_residency=layer"};

Args HashArgs(const Form& form) {
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
  constexpr Form kForms[] = {{1, 1, 1, "tcp"},      {2, 2, 1, "tcp"},      {3, 2, 1, "ipc"},
                             {5, 3, 2, "tcp"},      {2, 1, 2, "ipc", "3"}, {5, 1, 1, "ipc"},
                             {1, 3, 2, "shm"},      {3, 3, 1, "tcp", "2"}, {2, 2, 2, "shm"},
                             {3, 2, 1, "shm", "2"}, {2, 1, 1, "auto"}};
  for (const Form& form : kForms) {
    CAPTURE(form.workers);
    CAPTURE(form.servers);
    CAPTURE(form.threads);
    CAPTURE(form.transport);
    const Run run = Train(HashArgs(form));
    CheckCompleted(run, 8, 1);
    CHECK(run.summary.workers == form.workers);
    CHECK(run.summary.servers == form.servers);
    CHECK(run.summary.threads == form.threads);
    CheckSameResult(run, serial);
  }
}

TEST_CASE("rounds of local steps make the serial run's weights for any workers and servers") {
  const Args rounds{"--local-steps", "4", "--lr", "0.7", "--momentum", "0.9"};
  for (const Args& more : {Args{}, Args{"--codec", "int8"}}) {
    const Run serial = Train(Args{"--serial"} + rounds + more);
    CHECK(serial.summary.status == kStatusCompleted);
    for (const Form& form : {Form{1, 1, 1, "tcp"}, Form{2, 2, 1, "shm"}, Form{3, 2, 2, "tcp"}})
      CheckSameResult(Train(HashArgs(form) + rounds + more), serial);
  }
}

TEST_CASE("fixed staleness makes the serial run's weights for any workers and servers") {
  const Args stale{"--staleness", "1"};
  const std::vector<Args> all_options{{"--momentum", "0.9"},
                                      {"--clip-norm", "0.5"},
                                      {"--optimizer", "lamb", "--lr", "0.01"},
                                      {"--codec", "int8", "--local-steps", "4", "--lr", "0.7"}};
  for (const Args& options : all_options) {
    CAPTURE(options);
    const Run serial = Train(Args{"--serial"} + stale + options);
    CheckCompleted(serial, 8, 1);
    CHECK(serial.summary.weights_hash != Train(Args{"--serial"} + options).summary.weights_hash);
    for (const Form& form : {Form{1, 1, 1, "tcp"}, Form{2, 2, 1, "shm"}, Form{3, 2, 2, "tcp"}})
      CheckSameResult(Train(HashArgs(form) + stale + options), serial);
  }
  CheckSameResult(Train(HashArgs({3, 2, 1, "tcp"}) + stale + all_options[0] + kLayerResidency),
                  Train(Args{"--serial"} + stale + all_options[0]));
}

TEST_CASE("the number of servers for which shards are small enough changes no bit (P5)") {
  const std::vector<Args> all_options{{"--momentum", "0.9", "--clip-norm", "0.5"},
                                      {"--optimizer", "lamb", "--lr", "0.01"},
                                      {"--codec", "int8", "--pull-codec", "int8"}};
  const auto cut_for = [](const char* servers) {
    return Args{"--set", std::string("run.servers_max=") + servers};
  };
  for (const Args& options : all_options) {
    CAPTURE(options);
    const Run serial = Train(Args{"--serial"} + options + cut_for("4"));
    CheckSameResult(Train(Args{"--serial"} + options + cut_for("512")), serial);
    CheckSameResult(Train(Args{"--workers", "2", "--servers", "3"} + options + cut_for("64")),
                    serial);
  }
}

// Measured on an AMD EPYC. Other processors make the same bits at these levels.
TEST_CASE("at a CPU level the weights are those of every machine with it") {
  const std::map<std::string, std::string> hashes{{"v2", "cd1b988f3b3365a03acd50a70656dda8"},
                                                  {"v3", "3a2db63d27774d5ad956eeae870ac98d"}};
  const std::string best = EnumName(BestCpuLevel());
  for (const std::string level : {"v2", "v3", "v4"}) {
    CAPTURE(level);
    if (level <= best && kHasCpuLevels) {
      const Run run = Train({"--serial", "--cpu-level", level});
      if (hashes.contains(level)) CHECK(run.summary.weights_hash == hashes.at(level));
      TempFolder temp;
      Process doctor(temp.path(), "doctor", {"doctor", "--cpu-level", level});
      doctor.Await();
      CHECK(Contains(doctor.out(), ", x86-64-" + level + ", "));
    } else {
      TempFolder temp;
      Process train(temp.path(), "train", Args{"train", "--cpu-level", level} + TinyJob());
      train.Await();
      CHECK(train.exit_code() == kExitUsage);
      CHECK(Contains(train.err(), "CPU level " + level + ": this p"));
    }
  }
}

TEST_CASE("gradients that workers sum on their host first (P6a) make the serial run's weights") {
  const Args on_host{"--host-sum", "always"};
  const Run serial = Train({"--serial"});
  constexpr Form kForms[] = {
      {2, 1, 1, "tcp"}, {3, 2, 1, "shm"}, {5, 3, 2, "ipc"}, {3, 2, 1, "auto", "2"}};
  for (const Form& form : kForms) {
    CAPTURE(form.workers);
    CAPTURE(form.transport);
    CheckSameResult(Train(on_host + HashArgs(form)), serial);
  }
  const Args clipped = on_host + Args{"--clip-norm", "0.5"};
  CheckSameResult(Train(clipped + kLayerResidency + HashArgs({3, 2, 1, "tcp"})),
                  Train(Args{"--serial"} + clipped));
}

TEST_CASE("a run that starts from another's weights makes the serial run's weights" *
          doctest::test_suite("thorough 1")) {
  TempFolder temp;
  Process first(temp.path(), "first",
                Args{"train", "--serial", "--run-dir", temp.path() + "/first"} + TinyJob({}));
  first.Await();
  REQUIRE(first.exit_code() == kExitCompleted);
  const Args start{"--init", temp.path() + "/first/final.safetensors", "--lr", "0.001"};
  const Run serial = Train(Args{"--serial"} + start);
  CHECK(serial.rows[0] != Train({"--serial", "--lr", "0.001"}).rows[0]);
  CheckSameResult(Train(start + HashArgs({2, 2, 1, "tcp"})), serial);
  CheckSameResult(
      Train(start + HashArgs({3, 1, 1, "tcp"}) + Args{"--chaos", "kill server 0 at step 3"}),
      serial);
}

TEST_CASE("what servers do with a gradient, and how it travels, gives the serial run's weights" *
          doctest::test_suite("thorough 1")) {
  const std::vector<Args> features{
      {"--clip-norm", "0.5"},
      {"--set", "optimizer.clip_value=0.01"},
      {"--optimizer", "lars", "--lr", "1", "--momentum", "0.9", "--weight-decay", "0.0005"},
      {"--optimizer", "lamb", "--weight-decay", "0.01"},
      {"--optimizer", "adamw", "--weight-decay", "0.1", "--set",
       "optimizer.weight_decay_exclude_bias_and_norm=true", "--schedule", "multi-step", "--set",
       "schedule.milestones=3,5"},
      {"--codec", "bf16"},
      {"--codec", "fp16", "--pull-codec", "int8"},
      {"--codec", "int8", "--pull-codec", "bf16", "--clip-norm", "0.5"},
      {"--pull-codec", "fp16", "--set", "worker.parameter_residency=layer"}};
  const Run plain = Train({"--serial"});
  for (const Args& feature : features) {
    CAPTURE(feature);
    const Run serial = Train(Args{"--serial"} + feature);
    CHECK(serial.summary.weights_hash != plain.summary.weights_hash);
    CheckSameResult(Train(Args{"--serial", "--threads", "2"} + feature), serial);
    CheckSameResult(Train(feature + HashArgs({3, 2, 1, "tcp", "2"})), serial);
    CheckSameResult(Train(feature + HashArgs({2, 1, 2, "ipc"})), serial);
    CheckSameResult(Train(feature + HashArgs({3, 2, 1, "shm", "2"})), serial);
  }
}

TEST_CASE("large payloads are the same bits over tcp, ipc and shared memory") {
  // Shards of 51 KiB: below 16 KiB they travel as bytes by any transport.
  const Args large{"--model", "mlp", "--set", "model.hidden=1024"};
  const Run serial = Train(Args{"--serial"} + large);
  for (const char* transport : {"tcp", "ipc", "shm"}) {
    CAPTURE(transport);
    CheckSameResult(Train(large + HashArgs({2, 2, 2, transport})), serial);
    CheckSameResult(Train(large + Args{"--replicas", "1"} + HashArgs({1, 1, 1, transport})),
                    serial);
  }
  const Args layers{"--set", "worker.parameter_residency=layer"};
  CheckSameResult(Train(large + layers + HashArgs({3, 2, 1, "shm", "2"})), serial);
  const Args encoded{"--codec", "bf16", "--pull-codec", "fp16"};
  const Run encoded_serial = Train(Args{"--serial"} + large + encoded);
  CheckSameResult(Train(large + encoded + HashArgs({2, 2, 1, "shm"})), encoded_serial);
}

TEST_CASE("each of an optimizer's options has its say" * doctest::test_suite("thorough 1")) {
  const Args all{"--serial", "--optimizer", "adamw", "--weight-decay", "0.1", "--lr", "0.01"};
  const Args excluded{"--set", "optimizer.weight_decay_exclude_bias_and_norm=true"};
  const Args milestones{"--schedule", "multi-step", "--set", "schedule.milestones=3,5"};
  const std::string hash = Train(all + excluded + milestones).summary.weights_hash;
  CHECK(Train(all + milestones).summary.weights_hash != hash);
  CHECK(Train(all + excluded).summary.weights_hash != hash);
  const Args later{"--schedule", "multi-step", "--set", "schedule.milestones=3,6"};
  CHECK(Train(all + excluded + later).summary.weights_hash != hash);
}

TEST_CASE("the average of the weights is the same for any workers and servers" *
          doctest::test_suite("thorough 1")) {
  const Args job{"--ema-decay", "0.5"};
  const Run one = Train(job + HashArgs({1, 1, 1, "tcp"}));
  CHECK(one.average.size() == one.weights.size());
  CHECK(one.average != one.weights);
  const Run many = Train(job + HashArgs({3, 2, 2, "ipc", "2"}));
  CheckSameResult(many, one);
  CHECK(many.average == one.average);
}

TEST_CASE(
    "another number of micro-batches or another seed gives other weights, the same everywhere" *
    doctest::test_suite("thorough 1")) {
  const Run eight = Train({"--serial"});
  const Run six = Train({"--serial", "--micro-batches", "6"});
  CheckCompleted(six, 6, 1);
  CHECK(six.summary.weights_hash != eight.summary.weights_hash);
  CheckSameResult(Train(Args{"--micro-batches", "6"} + HashArgs({5, 2, 1, "tcp"})), six);
  const Run seeded = Train({"--serial", "--seed", "2"});
  CheckCompleted(seeded, 8, 2);
  CHECK(seeded.summary.weights_hash != eight.summary.weights_hash);
  CheckSameResult(Train(Args{"--seed", "2"} + HashArgs({3, 1, 1, "ipc"})), seeded);
}

TEST_CASE("batch norm, smoothed labels and activations computed again: the serial run's weights" *
          doctest::test_suite("thorough 1")) {
  const Args residual{"--set", "model.name=" + GoldenPath("residual.toml"), "--label-smoothing",
                      "0.1"};
  const Run serial = Train(Args{"--serial"} + residual);
  CHECK(serial.summary.status == kStatusCompleted);
  CheckSameResult(Train(Args{"--serial", "--threads", "2"} + residual), serial);
  for (const Form& form : {Form{2, 2, 1, "tcp"}, Form{3, 2, 2, "ipc"}}) {
    CheckSameResult(Train(HashArgs(form) + residual), serial);
  }
  CheckSameResult(Train(HashArgs({2, 2, 2, "tcp"}) + residual + kLayerResidency), serial);
  const Run checkpointed = Train(HashArgs({2, 1, 1, "ipc"}) + residual +
                                 Args{"--set", "train.activation_checkpointing=true"});
  CHECK(checkpointed.summary.weights_hash == serial.summary.weights_hash);
  CHECK(checkpointed.rows == serial.rows);
}

// The bytes in the worker's last words.
uint64_t HeldBytesIn(const std::string& text) {
  const size_t at = text.find("held at most ");
  REQUIRE_MESSAGE(at != std::string::npos, text);
  return std::stoull(text.substr(at + std::string("held at most ").size()));
}

TEST_CASE("workers that hold a layer at a time give the serial run's weights" *
          doctest::test_suite("thorough 1")) {
  const Args wide{"--model",        "mlp", "--set", "model.hidden=512,512,256,256,128",
                  "--global-batch", "480"};
  const Run serial = Train(Args{"--serial"} + wide);
  CheckSameResult(Train(Args{"--serial"} + wide + kLayerResidency), serial);  // it ignores it
  for (const Form& form : {Form{1, 1, 1, "ipc"}, Form{2, 2, 1, "tcp"}, Form{3, 2, 2, "ipc", "2"}})
    CheckSameResult(Train(HashArgs(form) + wide + kLayerResidency), serial);
  for (const Args& feature :
       {Args{"--verify-every", "2"}, Args{"--set", "train.activation_checkpointing=true"}}) {
    const Run run = Train(HashArgs({2, 2, 1, "tcp"}) + wide + kLayerResidency + feature);
    CHECK(run.weights == serial.weights);
    CHECK(run.rows == serial.rows);
  }
}

// 784 to 512 and 512 to 512 are 2.7 of 3.5 MB.
TEST_CASE("a worker that holds a layer at a time holds two at most, and says how much that was") {
  const auto held_by = [](const Args& residency) {
    JobByHand job(
        1, 1, TinyJob({"--model", "mlp", "--set", "model.hidden=512,512,256,256,128"}) + residency);
    job.scheduler->Await();
    job.workers[0]->Await();
    REQUIRE(job.workers[0]->exit_code() == kExitCompleted);
    return HeldBytesIn(job.workers[0]->err());
  };
  const uint64_t whole = held_by({});
  const uint64_t layers = held_by(kLayerResidency);
  MESSAGE("held at most: " << layers << " bytes by layers, " << whole << " in all");
  constexpr uint64_t kShardBytes = 64 << 10;  // of 3.5 MB; a layer ends within one
  CHECK(layers <= (784 * 512 + 512 + 512 * 512 + 512) * sizeof(float) + 2 * kShardBytes);
  CHECK(layers < whole / 2);
}

TEST_CASE("evaluations by steps end the run with the same version, and keep the same best one" *
          doctest::test_suite("thorough 1")) {
  const Args decides{"--epochs",
                     "8",
                     "--eval-every-steps",
                     "9",
                     "--early-stop-patience",
                     "2",
                     "--early-stop-min-delta",
                     "0.03",
                     "--snapshot-best",
                     "true"};
  const Run serial = Train(Args{"--serial"} + decides);
  CHECK(serial.summary.stopped_early);
  CHECK(serial.summary.steps < 8 * kTinySteps);
  CHECK(serial.summary.steps % 9 == 0);
  CHECK(serial.summary.best_weights_step == serial.summary.best_step);
  for (const Form& form : {Form{3, 2, 1, "tcp"}, Form{1, 1, 2, "ipc"}}) {
    const Run run = Train(decides + HashArgs(form));
    CheckSameResult(run, serial);
    CHECK(run.summary.stopped_early);
    CHECK(run.summary.steps == serial.summary.steps);
    CHECK(run.summary.best_weights_step == serial.summary.best_step);
    CHECK(run.best_weights == serial.best_weights);
    CHECK(run.summary.classes == serial.summary.classes);
    CHECK(run.summary.confusion_matrix == serial.summary.confusion_matrix);
    CHECK(run.summary.test_top5_accuracy == serial.summary.test_top5_accuracy);
  }
}

TEST_CASE("validation samples decide alike in every process, and the test set is left alone") {
  const Args validating{"--validation", "0.25", "--set", "data.synthetic_train_samples=2000"};
  const Run serial = Train(validating + Args{"--serial"});
  const Run run = Train(validating + Args{"--workers", "3", "--servers", "2"});
  CHECK(run.summary.weights_hash == serial.summary.weights_hash);
  CHECK(run.summary.evaluations.back().sample_count == 500);
  CHECK(run.summary.test_loss == serial.summary.test_loss);
  CHECK(run.summary.evaluated_on == "validation");

  TempFolder temp;
  const std::string run_dir = temp.path() + "/run";
  Process train(temp.path(), "train",
                Args{"train", "--run-dir", run_dir, "--serial", "--snapshot-best", "true"} +
                    TinyJob(validating + Args{"--set", "data.synthetic_test_samples=77"}));
  train.Await();
  REQUIRE_MESSAGE(train.exit_code() == kExitCompleted, train.err());
  CHECK(Contains(train.err(), "1500 training samples, 500 validation samples"));
  CHECK(Contains(train.err(), ", validation accuracy "));
  CHECK_FALSE(Contains(train.err(), "test accuracy"));
  CHECK(Contains(ReadBytes(run_dir + "/metrics.csv"), ",validation_accuracy,validation_loss\n"));
  Process evaluate(temp.path(), "evaluate", {"evaluate", run_dir, "--best"});
  evaluate.Await();
  CHECK(Contains(evaluate.out(), "best weights of mnist-cnn on synthetic-digits: test accuracy "));
  CHECK(Contains(evaluate.out(), " on 77 samples"));
}

}  // namespace
}  // namespace pando
