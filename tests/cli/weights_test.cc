// export, evaluate and verify, on a run folder made by hand: the serial trainer's versions of a
// small job, stored as a run's servers and scheduler would.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/exit_codes.h"
#include "common/hash.h"
#include "common/system.h"
#include "files/folder_files.h"
#include "job/job_file.h"
#include "job/run_plan.h"
#include "run/run_folder.h"
#include "run/run_weights.h"
#include "run/safetensors_file.h"
#include "run/serial_trainer.h"
#include "run/snapshot_file.h"
#include "run/snapshot_folder.h"
#include "tests/cli/pando_program.h"
#include "tests/contains.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

Job SmallJob(const std::string& run_dir, double ema_decay) {
  Job job;
  job.model = "mlp";
  job.mlp_hidden = {12};
  job.dataset = "synthetic-digits";
  job.synthetic_train_samples = 200;
  job.synthetic_test_samples = 1100;  // a slice and a bit
  job.global_batch = 20;
  job.micro_batches = 4;
  job.steps = 8;
  job.epochs = 0;
  job.optimizer.kind = OptimizerKind::kAdam;
  job.optimizer.ema_decay = ema_decay;
  job.run_dir = run_dir;
  return job;
}

// A run of which versions 3 and 6 are stored, and which may have ended.
struct RunByHand {
  TempFolder temp;
  std::string path = temp.path() + "/run";
  Job job;
  OpenedJob opened = Opened();
  RunFolder folder = Made();
  SnapshotFolder snapshots{folder.SnapshotsPath(), {}};

  explicit RunByHand(double ema_decay = 0.0) : job(SmallJob(path, ema_decay)) {
    SetFloatEnvironment();
    for (uint64_t version : {3, 6}) Store(At(version), {0, Version(version)});
  }
  OpenedJob Opened() const {
    Result<OpenedJob> result = OpenedJob::Open(job);
    REQUIRE_MESSAGE(result.ok(), result.status().message());
    return *std::move(result);
  }
  RunFolder Made() const {
    Result<RunFolder> result = RunFolder::Create(job, false);
    REQUIRE_MESSAGE(result.ok(), result.status().message());
    return *std::move(result);
  }
  SerialResult At(uint64_t version) const {
    Result<SerialResult> result =
        TrainSerially(job, *opened.data, opened.model, {}, {.last = Version(version)});
    REQUIRE(result.ok());
    CHECK(result->version == Version(version));
    return *std::move(result);
  }
  // `tamper` changes the flat vector before it is stored.
  void Store(const SerialResult& result, SnapshotRef snapshot,
             const std::function<void(FloatBuffer&)>& tamper = {}) {
    FloatBuffer flat(result.parameters->size());
    std::ranges::copy(result.parameters->span(), flat.data());
    if (tamper) tamper(flat);
    std::vector<StoreRequest> records;
    SnapshotManifest manifest{snapshot, {}};
    const std::string file = SnapshotFileName(snapshot, Incarnation(1), 0);
    for (uint32_t s = 0; s < opened.plan.shards.shard_count(); ++s) {
      const ShardRange& range = opened.plan.shards.range(ShardId(s));
      StoreRequest& record = records.emplace_back(
          StoreRequest{snapshot, ShardId(s), 0, std::make_shared<FloatBuffer>(range.size()),
                       std::make_shared<FloatBuffer>(result.states[s].size())});
      std::ranges::copy(flat.span().subspan(range.first, range.size()), record.parameters->data());
      std::ranges::copy(result.states[s].span(), record.state->data());
      record.hash = RecordHash(snapshot.version, record.parameters->span(), record.state->span());
      manifest.shards.push_back({record.hash, file});
    }
    FolderFiles files(folder.SnapshotsPath());
    REQUIRE(WriteSnapshotFile(files, file, JobId(7), snapshot, records).ok());
    REQUIRE(snapshots.OnComplete(manifest).ok());
  }
  std::string HashAt(uint64_t version) const {
    return WeightsHash(opened.plan.layout, At(version).parameters->span());
  }
  std::string Out() const { return temp.path() + "/out.safetensors"; }
};

TEST_CASE("a run that has not ended exports its newest snapshot, or the one of a step") {
  RunByHand run;
  Outcome outcome = Pando({"export", run.path, run.Out()});
  CAPTURE(outcome.output);
  REQUIRE(outcome.exit_code == kExitCompleted);
  CHECK(outcome.output == run.Out() + ": snapshot g000-v000000006 after 6 steps, weights_hash " +
                              run.HashAt(6) + "\n");
  outcome = Pando({"export", run.path, run.Out(), "--step", "3"});
  CHECK(Contains(outcome.output, run.HashAt(3)));
  Result<FloatBuffer> read = ReadWeights(run.Out(), run.opened.plan.layout);
  REQUIRE(read.ok());
  CHECK(WeightsHash(run.opened.plan.layout, read->span()) == run.HashAt(3));
  outcome = Pando({"export", run.path, run.Out(), "--step", "5"});
  CHECK(outcome.exit_code == kExitUsage);
  CHECK(Contains(outcome.output, "no snapshot of step 5: the snapshots in " +
                                     run.folder.SnapshotsPath() + " are of steps 3, 6"));
}

TEST_CASE("the best version that has a snapshot is written, and exported") {
  RunByHand run;
  const std::vector<EvaluationSummary> evaluations{
      {Version(3), 100, 60, 0}, {Version(5), 100, 90, 0}, {Version(6), 100, 80, 0}};
  const auto best = WriteBestWeights(run.folder, run.opened.plan, evaluations, Version(8));
  REQUIRE_MESSAGE(best.ok(), best.status().message());
  REQUIRE(best->has_value());
  CHECK(**best == Version(6));  // of version 5 there is no snapshot
  Outcome outcome = Pando({"export", run.path, run.Out(), "--best"});
  CHECK(outcome.exit_code == kExitUsage);  // the run has no summary yet
  Summary summary = MakeSummary(run.job);
  REQUIRE(run.folder.WriteSummary(summary).ok());
  outcome = Pando({"export", run.path, run.Out(), "--best"});
  CHECK(outcome.exit_code == kExitUsage);
  CHECK(Contains(outcome.output, "snapshot.best"));
  summary.best_weights_step = 6;
  REQUIRE(run.folder.WriteSummary(summary).ok());
  outcome = Pando({"export", run.path, run.Out(), "--best"});
  CHECK(outcome.exit_code == kExitCompleted);
  CHECK(Contains(outcome.output, "best weights after 6 steps, weights_hash " + run.HashAt(6)));
  CHECK(Pando({"export", run.path, run.Out(), "--best", "--step", "3"}).exit_code == kExitUsage);
  outcome = Pando({"evaluate", run.path, "--best"});
  CHECK(outcome.exit_code == kExitCompleted);
  CHECK(Contains(outcome.output, "weights_hash " + run.HashAt(6)));
  outcome = Pando({"evaluate", run.Out(), "--best"});
  CHECK(Contains(outcome.output, "--best chooses from the snapshots of a run folder"));
}

TEST_CASE("the best version of a run that stopped early may be its last") {
  RunByHand run;
  const SerialResult last = run.At(5);
  const TensorLayout& layout = run.opened.plan.layout;
  REQUIRE(WriteWeights(run.folder.WeightsPath(), layout, last.parameters->span()).ok());
  const std::vector<EvaluationSummary> evaluations{{Version(3), 100, 80, 0},
                                                   {Version(5), 100, 90, 0}};
  // The run has no summary yet, and version 5 no snapshot.
  const auto best = WriteBestWeights(run.folder, run.opened.plan, evaluations, Version(5));
  REQUIRE_MESSAGE(best.ok(), best.status().message());
  REQUIRE(best->has_value());
  CHECK(**best == Version(5));
  Result<FloatBuffer> kept = ReadWeights(run.folder.BestWeightsPath(), layout);
  REQUIRE(kept.ok());
  CHECK(WeightsHash(layout, std::as_const(*kept).span()) == run.HashAt(5));
}

TEST_CASE("without an evaluation there is no best version, and without snapshots an error") {
  RunByHand run;
  const auto none = WriteBestWeights(run.folder, run.opened.plan, {}, Version(8));
  REQUIRE(none.ok());
  CHECK_FALSE(none->has_value());
  const std::vector<EvaluationSummary> evaluations{{Version(4), 100, 60, 0}};
  CHECK_FALSE(WriteBestWeights(run.folder, run.opened.plan, evaluations, Version(8)).ok());
  CHECK_FALSE(fs::exists(run.folder.BestWeightsPath()));
}

TEST_CASE("a run that has ended exports and evaluates its final weights") {
  RunByHand run;
  const SerialResult final_one = run.At(8);
  REQUIRE(
      WriteWeights(run.folder.WeightsPath(), run.opened.plan.layout, final_one.parameters->span())
          .ok());
  for (const std::vector<std::string>& step : {std::vector<std::string>{}, {"--step", "8"}}) {
    std::vector<std::string> args{"export", run.path, run.Out()};
    args.insert(args.end(), step.begin(), step.end());
    const Outcome outcome = Pando(args);
    CAPTURE(outcome.output);
    CHECK(Contains(outcome.output, "final weights after 8 steps, weights_hash " + run.HashAt(8)));
  }
}

TEST_CASE("the average of the weights is exported and evaluated from a snapshot") {
  RunByHand run(0.75);
  const TensorLayout& layout = run.opened.plan.layout;
  std::vector<float> average;
  for (uint64_t version = 1; version <= 6; ++version) {
    const SerialResult at = run.At(version);
    const std::span<const float> made = at.parameters->span();
    if (average.empty()) average.assign(made.begin(), made.end());
    for (size_t i = 0; i < average.size(); ++i) average[i] = 0.75f * average[i] + 0.25f * made[i];
  }
  Outcome outcome = Pando({"export", run.path, run.Out(), "--ema"});
  CAPTURE(outcome.output);
  REQUIRE(outcome.exit_code == kExitCompleted);
  CHECK(Contains(outcome.output, "averaged weights of snapshot g000-v000000006 after 6 steps"));
  Result<FloatBuffer> read = ReadWeights(run.Out(), layout);
  REQUIRE(read.ok());
  // The test's additions may be fused, the servers' are not.
  constexpr float kEmaTolerance = 1e-6f;
  for (size_t i = 0; i < layout.offset(layout.tensor_count() - 1); ++i)
    CHECK(std::abs(read->data()[i] - average[i]) <= kEmaTolerance);
  CHECK_FALSE(WeightsHash(layout, std::as_const(*read).span()) == run.HashAt(6));
  outcome = Pando({"evaluate", run.path, "--ema"});
  CHECK(Contains(outcome.output, "averaged weights of snapshot g000-v000000006 of "));
  outcome = Pando({"evaluate", run.Out(), "--ema"});
  CHECK(Contains(outcome.output, "--ema chooses from the snapshots of a run folder"));
}

TEST_CASE("a run without an average is an error") {
  RunByHand run;
  const Outcome outcome = Pando({"export", run.path, run.Out(), "--ema"});
  CHECK(outcome.exit_code == kExitUsage);
  CHECK(Contains(outcome.output, "its job has optimizer.ema_decay = 0"));
}

TEST_CASE("an evaluation has the same bits as the run's own") {
  RunByHand run;
  Result<SerialResult> whole = TrainSerially(run.job, *run.opened.data, run.opened.model, {});
  REQUIRE(whole.ok());
  REQUIRE(whole->last_evaluation.has_value());
  Result<EvaluationSummary> again =
      EvaluateSerially(run.opened.plan, *run.opened.data, run.opened.model, *whole->parameters);
  REQUIRE(again.ok());
  CHECK(again->sample_count == 1100);
  CHECK(again->correct_count == whole->last_evaluation->correct_count);
  CHECK(again->loss_sum == whole->last_evaluation->loss_sum);
  CHECK(again->top5_count == whole->last_evaluation->top5_count);

  // A file in the run's folder, one elsewhere with a job file, and the folder itself.
  REQUIRE(WriteWeights(run.folder.WeightsPath(), run.opened.plan.layout, whole->parameters->span())
              .ok());
  REQUIRE(WriteWeights(run.Out(), run.opened.plan.layout, whole->parameters->span()).ok());
  for (const std::vector<std::string>& what : {std::vector<std::string>{run.path},
                                               {run.folder.WeightsPath()},
                                               {run.Out(), "--job", run.folder.JobPath()}}) {
    std::vector<std::string> args{"evaluate", "--json"};
    args.insert(args.end(), what.begin(), what.end());
    const Outcome outcome = Pando(args);
    CAPTURE(outcome.output);
    REQUIRE(outcome.exit_code == kExitCompleted);
    const auto json = nlohmann::json::parse(outcome.output);
    CHECK(json.at("test_accuracy") == again->accuracy());
    CHECK(json.at("test_loss") == again->loss_sum / 1100);
    CHECK(json.at("weights_hash") ==
          WeightsHash(run.opened.plan.layout, whole->parameters->span()));
  }
}

TEST_CASE("a file's own words count before the job.toml that lies beside it") {
  RunByHand run;
  const std::vector<float> flat(run.opened.plan.layout.float_count());
  SafetensorsMetadata metadata = WeightsMetadata(run.opened.plan, Version(3));
  const std::string path = run.path + "/stray.safetensors";
  Outcome outcome;
  SUBCASE("of another data set") {
    metadata["dataset"] = "mnist";
    REQUIRE(WriteWeights(path, run.opened.plan.layout, flat, metadata).ok());
    outcome = Pando({"evaluate", path, "--data", run.temp.path()});
    CHECK(Contains(outcome.output, "is of mlp on mnist, as it says"));
    CHECK(outcome.exit_code == kExitUsage);  // there are no data of it
  }
  SUBCASE("a flag against them is named") {
    REQUIRE(WriteWeights(path, run.opened.plan.layout, flat, metadata).ok());
    outcome = Pando({"evaluate", path, "--model", "lenet5"});
    CHECK(Contains(outcome.output,
                   "says it is of mlp on synthetic-digits; it is measured as lenet5 on "
                   "synthetic-digits, as you ask"));
  }
  SUBCASE("other inputs than the data have") {
    metadata["input_shape"] = "1x1x7";
    REQUIRE(WriteWeights(path, run.opened.plan.layout, flat, metadata).ok());
    outcome = Pando({"evaluate", path});
    CHECK(outcome.exit_code == kExitUsage);
    CHECK(Contains(outcome.output, "was trained with inputs of 1x1x7"));
  }
}

TEST_CASE("a file's pictures have the size that its network was trained with") {
  TempFolder temp;
  Job job = SmallJob(temp.path() + "/run", 0);
  job.mlp_hidden = Job().mlp_hidden;
  job.dataset = "synthetic-imagenet";
  job.resize = 24;
  const OpenedJob opened = *OpenedJob::Open(job);
  const std::vector<float> flat(opened.plan.layout.float_count());
  const std::string path = temp.path() + "/small.safetensors";
  REQUIRE(
      WriteWeights(path, opened.plan.layout, flat, WeightsMetadata(opened.plan, Version(3))).ok());
  const Outcome outcome = Pando({"evaluate", path, "--limit", "10"});
  CHECK_MESSAGE(outcome.exit_code == kExitCompleted, outcome.output);
}

TEST_CASE("weights that do not fit the model, or are none, are one clear line") {
  RunByHand run;
  REQUIRE(
      WriteWeights(run.Out(), TensorLayout({{.name = "x", .shape = {1}}}), std::vector<float>(16))
          .ok());
  Outcome outcome = Pando({"evaluate", run.Out(), "--job", run.folder.JobPath()});
  CHECK(outcome.exit_code == kExitUsage);
  CHECK(Contains(outcome.output, "has no tensor 'fc1.weight', which the model has"));
  outcome = Pando({"evaluate", run.temp.path() + "/none"});
  CHECK(outcome.exit_code == kExitUsage);
  CHECK(Contains(outcome.output, "cannot open " + run.temp.path() + "/none: No such file"));
  outcome = Pando({"export", run.temp.path() + "/none", run.Out()});
  CHECK(Contains(outcome.output, "holds no run"));
  outcome = Pando({"export", run.path, run.temp.path() + "/none/out"});
  CHECK(Contains(outcome.output, "cannot create " + run.temp.path() + "/none/out"));
}

TEST_CASE("predict names metadata that do not say how a sample becomes an input") {
  RunByHand run;
  const auto expect = [&](const char* key, const char* value, const std::string& expected) {
    SafetensorsMetadata metadata = WeightsMetadata(run.opened.plan, Version(8));
    metadata[key] = value;
    REQUIRE(WriteWeights(run.Out(), run.opened.plan.layout, run.At(8).parameters->span(), metadata)
                .ok());
    CheckUsageError({"predict", run.Out(), run.temp.path(), "--job", run.folder.JobPath()},
                    run.Out() + ": " + expected);
  };
  expect("class_names", "a,b", "its metadata hold no list where docs/data.md has one");
  expect("input_mean", "[\"a\"]", "its metadata hold no list where docs/data.md has one");
  expect("input_mean", "[1,2]", "its metadata have 2 means, 1 deviations and 0 columns for inputs");
  const std::string columns = nlohmann::json(std::vector<std::string>(784, "x")).dump();
  expect("input_columns", columns.c_str(), "its metadata have 1 means, 1 deviations and 784 colum");
  expect("input_deviation", "[0]", "its metadata input_deviation [0]: expected numbers above 0");
  expect("input_deviation", "[-1]", "its metadata input_deviation [-1]: expected numbers above 0");
  expect("input_deviation", "[1e-99]", "its metadata input_deviation [1e-99]: expected numbers");
  expect("input_shape", "28x28", "its metadata input_shape 28x28: expected HEIGHTxWIDTHxCHANNELS");
  expect("class_names", "[\"a\",\"b\"]", "tensor 'fc2.weight' has shape");
}

TEST_CASE("predict replaces no device, no folder and nothing that it reads") {
  RunByHand run;
  REQUIRE(WriteWeights(run.folder.WeightsPath(), run.opened.plan.layout,
                       run.At(8).parameters->span(), WeightsMetadata(run.opened.plan, Version(8)))
              .ok());
  const std::string input = run.temp.path() + "/a.png";
  std::ofstream(input) << "no picture";
  for (const std::string& out : {std::string("/dev/null"), run.temp.path()})
    CheckUsageError({"predict", run.path, input, "--out", out}, out + " is no regular file");
  const std::string link = run.temp.path() + "/link";
  fs::create_symlink(run.folder.WeightsPath(), link);
  for (const std::string& out : {run.folder.WeightsPath(), link})
    CheckUsageError({"predict", run.path, input, "--out", out},
                    out + " would replace " + run.folder.WeightsPath());
  CheckUsageError({"predict", run.path, input, "--out", input}, input + " would replace " + input);
  CHECK(*ReadTextFile(input) == "no picture");
  CHECK(fs::is_character_file("/dev/null"));
}

// ---- verify ------------------------------------------------------------------------------------

TEST_CASE("a stretch begun from a snapshot ends with the bits of the whole") {
  RunByHand run;
  const SerialResult at3 = run.At(3);
  std::vector<SharedBuffer> states;
  for (const FloatBuffer& state : at3.states) {
    states.push_back(std::make_shared<FloatBuffer>(state.size()));
    std::ranges::copy(state.span(), states.back()->data());
  }
  Result<SerialResult> rest =
      TrainSerially(run.job, *run.opened.data, run.opened.model, {},
                    {.first = Version(3), .parameters = at3.parameters.get(), .states = states});
  REQUIRE(rest.ok());
  CHECK(rest->version == Version(8));
  CHECK(WeightsHash(run.opened.plan.layout, rest->parameters->span()) == run.HashAt(8));
}

TEST_CASE("verify finds every snapshot of a sound run to follow from the one before") {
  RunByHand run;
  Outcome outcome = Pando({"verify", run.path, "--step", "3"});
  CAPTURE(outcome.output);
  CHECK(outcome.exit_code == kExitCompleted);
  CHECK(Contains(outcome.output, "g000-v000000003: every bit follows from the start"));
  outcome = Pando({"verify", run.path});
  CHECK(outcome.exit_code == kExitCompleted);
  CHECK(Contains(outcome.output, "g000-v000000006: every bit follows from g000-v000000003"));
  outcome = Pando({"verify", run.path, "--step", "4"});
  CHECK(outcome.exit_code == kExitUsage);
  CHECK(Contains(outcome.output, "are of steps 3, 6"));
}

TEST_CASE("verify names the first tensor and element that differ, or the optimizer's state") {
  RunByHand run;
  const TensorLayout& layout = run.opened.plan.layout;
  const size_t tensor = layout.Find("fc2.bias");
  REQUIRE(tensor < layout.tensor_count());
  run.Store(run.At(6), {0, Version(6)}, [&](FloatBuffer& flat) {
    flat.data()[layout.offset(tensor) + 4] += 1.0f;
    flat.data()[layout.offset(tensor) + 7] += 1.0f;
  });
  Outcome outcome = Pando({"verify", run.path, "--step", "6"});
  CAPTURE(outcome.output);
  CHECK(outcome.exit_code == kExitFailed);
  CHECK(Contains(outcome.output,
                 "g000-v000000006 does not follow from g000-v000000003: fc2.bias[4] of 10 is "));

  SerialResult wrong = run.At(6);
  wrong.states[0].data()[2] += 1.0f;
  run.Store(wrong, {0, Version(6)});
  outcome = Pando({"verify", run.path, "--step", "6"});
  CHECK(outcome.exit_code == kExitFailed);
  CHECK(Contains(outcome.output, "optimizer state 0 of fc1.weight[2] is "));
}

// ---- a user's table, from the first run to a second one ----------------------------------------

struct OwnTable {
  TempFolder temp;
  std::string path = temp.path() + "/penguins.csv";
  std::vector<std::string> flags{"--dataset", "csv", "--data",  path, "--label",  "species",
                                 "--model",   "mlp", "--steps", "20", "--serial", "--global-batch",
                                 "20"};
  OwnTable() {
    std::ofstream file(path);
    file << "species,mass,island\n";
    for (int n = 0; n < 100; ++n) {
      const bool is_adelie = n % 3 == 0;
      file << (is_adelie ? "Adelie," : "Gentoo,") << n % 7 + (is_adelie ? 0 : 10)
           << (n % 2 == 0 ? ",Dream\n" : ",Biscoe\n");
    }
  }
  std::string Run(const std::string& name) const { return temp.path() + "/" + name; }
  Outcome Train(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> args{"train", "--run-dir", Run(name)};
    args.insert(args.end(), flags.begin(), flags.end());
    args.insert(args.end(), more.begin(), more.end());
    return Pando(args);
  }
};

TEST_CASE("a table's weights and summary say how its columns become inputs, and name the classes") {
  OwnTable table;
  const Outcome trained = table.Train("first");
  REQUIRE_MESSAGE(trained.exit_code == kExitCompleted, trained.output);
  Result<SafetensorsFile> file = SafetensorsFile::Open(table.Run("first") + "/final.safetensors");
  REQUIRE(file.ok());
  CHECK(file->metadata().at("input_shape") == "1x1x3");
  CHECK(file->metadata().at("input_columns") == R"(["mass","island=Biscoe","island=Dream"])");
  CHECK(file->metadata().at("class_names") == R"(["Adelie","Gentoo"])");
  const auto mean = nlohmann::json::parse(file->metadata().at("input_mean"));
  CHECK(mean[0].get<double>() > 1);
  CHECK(mean[1] == 0);
  const auto summary = nlohmann::json::parse(*ReadTextFile(table.Run("first") + "/summary.json"));
  CHECK(summary.at("class_names") == nlohmann::json({"Adelie", "Gentoo"}));
  CHECK(summary.at("input_mean") == mean);
  Outcome outcome = Pando({"evaluate", table.Run("first"), "--classes", "--limit", "10"});
  CAPTURE(outcome.output);
  CHECK(outcome.exit_code == kExitCompleted);
  CHECK(Contains(outcome.output, " on 10 samples"));
  CHECK(Contains(outcome.output, "\nAdelie "));
}

TEST_CASE("a run starts from the weights of another, and keeps them") {
  OwnTable table;
  REQUIRE(table.Train("first").exit_code == kExitCompleted);
  const std::string weights = table.Run("first") + "/final.safetensors";
  Outcome outcome = table.Train("second", {"--init", weights});
  REQUIRE_MESSAGE(outcome.exit_code == kExitCompleted, outcome.output);
  CHECK(Contains(outcome.output, "starting from the weights in " + weights));
  CHECK(*ReadTextFile(table.Run("second") + "/final.safetensors") != *ReadTextFile(weights));
  CHECK(fs::exists(table.Run("second") + "/init.safetensors"));
  outcome = table.Train("third", {"--init", weights, "--set", "model.hidden=64"});
  CHECK(outcome.exit_code == kExitUsage);
  CHECK(Contains(outcome.output, "fc1.weight ([128, 3] in the file, [64, 3] in the model)"));
  CHECK_FALSE(fs::exists(table.Run("third")));
  outcome = table.Train("third",
                        {"--init", weights, "--set", "model.hidden=64", "--init-partial", "true"});
  CHECK(outcome.exit_code == kExitCompleted);
  CHECK(Contains(outcome.output, "drawn from the seed: fc1.weight"));
}

TEST_CASE("a resumed run keeps what decides its weights") {
  RunByHand run;
  const Outcome outcome = Pando({"resume", run.path, "--set", "optimizer.lr=0.5"});
  CHECK(outcome.exit_code == kExitUsage);
  CHECK(Contains(outcome.output, "--set optimizer.lr=0.5: optimizer.lr is part of"));
}

TEST_CASE("a run whose folder was changed is not resumed, and stays as it is") {
  RunByHand run;
  REQUIRE(run.folder.KeepIdentity(run.job, run.opened.plan.data).ok());
  Outcome outcome = Pando({"resume", run.path});
  CHECK(outcome.exit_code == kExitUsage);
  CHECK(Contains(outcome.output, "scheduler.db is missing"));
  CHECK(Contains(outcome.output, "has a snapshot of step 6"));
  std::ofstream(SeatPath(run.path)) << "/pando/run/\n";
  outcome = Pando({"resume", run.path});
  CHECK(Contains(outcome.output, "--etcd and --etcd-prefix /pando/run/,"));
  outcome = Pando({"scheduler", run.folder.JobPath(), "--run-dir", run.path});
  CHECK(Contains(outcome.output, "--etcd and --etcd-prefix /pando/run/,"));
  fs::remove(SeatPath(run.path));
  std::ofstream(run.folder.JournalPath()) << "no database";
  outcome = Pando({"resume", run.path});
  CHECK(outcome.exit_code != kExitCompleted);
  CHECK(Contains(outcome.output, "scheduler.db is damaged"));
  CHECK_FALSE(Contains(outcome.output, "continue with"));
  run.job.seed = 2;
  std::ofstream(run.folder.JobPath()) << WriteJobText(run.job);
  outcome = Pando({"resume", run.path});
  CHECK(outcome.exit_code == kExitUsage);
  CHECK(Contains(outcome.output, "train.seed is 2 there, and was 1"));
  CHECK(ReadManifests(run.folder.SnapshotsPath())->size() == 2);
}

TEST_CASE("weights that were damaged are not evaluated or exported as the run's") {
  RunByHand run;
  REQUIRE(
      WriteWeights(run.folder.WeightsPath(), run.opened.plan.layout, run.At(8).parameters->span())
          .ok());
  Summary summary = MakeSummary(run.job);
  for (const uint64_t version : {6, 8}) {
    summary.weights_hash = run.HashAt(version);
    REQUIRE(run.folder.WriteSummary(summary).ok());
    const Outcome outcome = Pando({"evaluate", run.path});
    CHECK((outcome.exit_code == kExitCompleted) == (version == 8));
    CHECK(Contains(outcome.output, "changed after the run") == (version == 6));
  }
  std::string bytes = *ReadTextFile(run.folder.WeightsPath());
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(run.folder.WeightsPath(), std::ios::binary) << bytes;
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"evaluate", run.path}, {"export", run.path, run.Out()}}) {
    const Outcome outcome = Pando(args);
    CHECK(outcome.exit_code != kExitCompleted);
    CHECK(Contains(outcome.output, "damaged or changed"));
  }
  CHECK_FALSE(fs::exists(run.Out()));
  run.Store(run.At(8), {0, Version(8)});
  const Outcome named = Pando({"export", run.path, run.Out(), "--step", "8"});
  CHECK_MESSAGE(named.exit_code == kExitCompleted, named.output);  // of the snapshot
}

// ---- an independent reader ---------------------------------------------------------------------

// Reads the file as its specification says; accuracy and loss of the mlp computed with the plain
// formulas would need the data too, so the values themselves are compared.
constexpr const char* kReader = R"(
import json, struct, sys
data = open(sys.argv[1], 'rb').read()
size, = struct.unpack('<Q', data[:8])
header = json.loads(data[8:8 + size])
header.pop('__metadata__')
for name, t in sorted(header.items()):
    a, b = t['data_offsets']
    count = 1
    for d in t['shape']:
        count *= d
    assert t['dtype'] == 'F32' and (b - a) == 4 * count
    values = data[8 + size + a:8 + size + b]
    print(name, t['shape'], values[:8].hex(), values[-8:].hex())
)";

TEST_CASE("Python reads an exported snapshot: PyTorch's names and shapes, the run's bits") {
  if (std::system("python3 -c '' > /dev/null 2>&1") != 0) {
    MESSAGE("SKIPPED: no python3 here");
    return;
  }
  RunByHand run;
  REQUIRE(Pando({"export", run.path, run.Out()}).exit_code == kExitCompleted);
  const std::string reader = run.temp.path() + "/read.py";
  const std::string output = run.temp.path() + "/read.txt";
  std::ofstream(reader) << kReader;
  REQUIRE(std::system(("python3 " + reader + " " + run.Out() + " > " + output).c_str()) == 0);
  const SerialResult at6 = run.At(6);
  const auto hex = [&](const char* name, size_t first) {
    const size_t tensor = run.opened.plan.layout.Find(name);
    const auto values =
        at6.parameters->span().subspan(run.opened.plan.layout.offset(tensor) + first, 2);
    std::string text;
    for (std::byte byte : std::as_bytes(values)) {
      text += "0123456789abcdef"[std::to_integer<int>(byte) >> 4];
      text += "0123456789abcdef"[std::to_integer<int>(byte) & 15];
    }
    return text;
  };
  CHECK(*ReadTextFile(output) ==
        "fc1.bias [12] " + hex("fc1.bias", 0) + " " + hex("fc1.bias", 10) + "\n" +
            "fc1.weight [12, 784] " + hex("fc1.weight", 0) + " " + hex("fc1.weight", 9406) + "\n" +
            "fc2.bias [10] " + hex("fc2.bias", 0) + " " + hex("fc2.bias", 8) + "\n" +
            "fc2.weight [10, 12] " + hex("fc2.weight", 0) + " " + hex("fc2.weight", 118) + "\n");
}

}  // namespace
}  // namespace pando
