#include "run/run_recorder.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/exit_codes.h"
#include "job/job_file.h"
#include "run/output/events_file.h"
#include "run/safetensors_file.h"
#include "tests/file_size_limit.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

// 10 steps of 100 samples.
using Rates = std::pair<double, double>;
struct RecordedRun {
  TempFolder temp;
  RunFolder folder = RunFolder::Open(temp.path());
  JobPlan plan = Plan();

  static JobPlan Plan() {
    Job job;
    job.global_batch = 100;
    job.steps = 10;
    return JobPlan(job, {.train_samples = 1000},
                   TensorLayout({{.name = "a", .shape = {3}}, MetricTensorSpec()}));
  }
  RunRecorder Create() {
    Result<RunRecorder> recorder = RunRecorder::Create(plan, folder);
    REQUIRE(recorder.ok());
    return *std::move(recorder);
  }
  RunRecorder Reopen(const SchedulerState& state) {
    Result<RunRecorder> recorder =
        RunRecorder::Reopen(plan, folder, state, EventsFile::Gap::kCounts);
    REQUIRE_MESSAGE(recorder.ok(), recorder.status().message());
    return *std::move(recorder);
  }
  // Images per second, and ms per step, in the last row.
  std::pair<double, double> LastRates() const {
    MetricsFile::Last last;
    REQUIRE(MetricsFile::Reopen(folder, &last).ok());
    return {last.row->images_per_second, last.row->step_ms};
  }
  uint64_t RowCount() const {
    std::ifstream file(folder.MetricsPath());
    uint64_t count = 0;
    for (std::string line; std::getline(file, line);) count += line.ends_with(",,") ? 1 : 0;
    return count;
  }
  std::vector<uint64_t> EvaluatedSteps() const {
    std::ifstream file(folder.MetricsPath());
    std::vector<uint64_t> steps;
    std::string line;
    std::getline(file, line);  // the heading
    while (std::getline(file, line)) {
      if (!line.ends_with(",,")) steps.push_back(std::stoull(line));
    }
    return steps;
  }
};

StepMetrics RowAt(uint64_t step, float loss) { return {.step = Step(step), .loss = loss}; }

// All steps up to this one are made, 100 samples each, at this mean speed.
TrainingReach ReachAt(uint64_t step, double images_per_second) {
  const Version made = VersionMadeBy(Step(step));
  return {made, 100 * static_cast<double>(made.value()) / images_per_second};
}

SchedulerState StateOfEarlierLife() {
  SchedulerState state;
  state.view.generation = 2;
  state.evaluations = {{Version(2), 100, 90, 20}, {Version(4), 100, 80, 30}};
  state.snapshots = {{{1, Version(2)}, {}}, {{2, Version(4)}, {}}};
  state.faults = {
      {.id = 3, .action = "kill", .target = "worker 1", .detected_ms = 5, .detected_by = "exit"}};
  return state;
}

TEST_CASE("a recorder that goes on has in its summary what earlier lives had") {
  RecordedRun run;
  {
    RunRecorder first = run.Create();
    for (uint64_t step = 0; step < 5; ++step)
      first.OnStep(RowAt(step, 1), 0.1, ReachAt(step, 1000));
    first.OnEvent("rollback", "", "the run begins again");
  }  // killed: no summary
  const SchedulerState state = StateOfEarlierLife();
  RunRecorder second = run.Reopen(state);
  CHECK(second.next_row() == Step(5));
  CHECK(CountEvents(run.folder, "fault") == 1);  // which the first did not come to write
  CHECK(run.Reopen(state).next_row() == Step(5));
  CHECK(CountEvents(run.folder, "fault") == 1);
  CHECK(second.speed().past_seconds() >= 0.5);
  second.OnStep(RowAt(5, 0.5f), 0.1, ReachAt(5, 1000));
  FaultRecord fault = state.faults[0];
  fault.recovered_ms = 9;
  second.OnFault(fault);
  second.OnFault({.id = 4, .action = "stop", .target = "server 0"});
  second.OnEvaluation({Version(6), 100, 85, 10, 100, {{40, 40}, {60, 45}}, {40, 0, 15, 45}});
  second.OnSnapshot({2, Version(6)});
  second.OnSnapshotDropped({1, Version(2)});
  CHECK(second.Conclude(kStatusInterrupted, Status()) == kExitInterrupted);

  CHECK(run.RowCount() == 6);
  CHECK(run.EvaluatedSteps() == std::vector<uint64_t>{2, 4, 6});
  Result<Summary> summary = run.folder.ReadSummary();
  REQUIRE(summary.ok());
  CHECK(summary->steps == 6);
  CHECK(summary->train_loss == 0.5);
  CHECK(summary->evaluations.size() == 3);
  CHECK(summary->test_accuracy == 0.85);
  CHECK(summary->best_test_accuracy == 0.9);
  CHECK(summary->best_step == 2);
  CHECK(summary->test_top5_accuracy == 1.0);
  CHECK(summary->classes == std::vector<ClassScore>{{40, 40}, {60, 45}});
  CHECK(summary->confusion_matrix == std::vector<std::vector<uint64_t>>{{40, 0}, {15, 45}});
  CHECK(summary->test_loss == 0.1);
  CHECK(summary->generation == 2);
  CHECK(summary->rollbacks == 1);
  CHECK(summary->snapshots == std::vector<SnapshotRef>{{2, Version(4)}, {2, Version(6)}});
  REQUIRE(summary->faults.size() == 2);
  CHECK(summary->faults[0].recovered_ms == 9);
  CHECK(summary->faults[1].target == "server 0");
  CHECK(summary->fault_count == 4);
  CHECK(CountEvents(run.folder, "fault") == 3);
}

TEST_CASE("a recorder without rows begins at the first, for any journal") {
  RecordedRun run;
  RunRecorder recorder = run.Reopen(SchedulerState{});
  CHECK(recorder.next_row() == Step(0));
  CHECK(recorder.speed().past_seconds() == 0);
  recorder.OnStep(RowAt(0, 1), 0.1, {});
  CHECK(run.RowCount() == 1);
}

TEST_CASE("rates are of the last second of training, however its steps were reported") {
  RecordedRun run;
  RunRecorder recorder = run.Create();
  const auto window = [&](uint64_t step, double mean) {
    recorder.OnStep(RowAt(step, 1), 0.1, ReachAt(step, mean));
    return run.LastRates();
  };
  CHECK(window(0, 400) == Rates{400, 250});      // 100 samples in 0.25 s
  CHECK(window(1, 800) == Rates{800, 125});      // in the same report
  CHECK(window(2, 300) == Rates{300, 333.333});  // a whole window: 1 s
  CHECK(window(3, 400) == Rates{300, 333.333});  // at 1 s: too short
  CHECK(window(4, 250) == Rates{200, 500});      // two steps in another second
}

TEST_CASE("steps that come together after the scheduler was away have the speed of that time") {
  RecordedRun run;
  {
    RunRecorder first = run.Create();
    for (uint64_t step = 0; step < 3; ++step) first.OnStep(RowAt(step, 1), 0.1, ReachAt(step, 250));
    CHECK(run.LastRates() == Rates{250, 400});
  }  // killed at 1.2 s
  RunRecorder second = run.Reopen(SchedulerState());
  const double before = second.speed().past_seconds() - 1.2;
  CHECK(before >= 0);  // the time between the two lives
  // Reports that waited for the scheduler: how old they are is not known.
  second.OnStep(RowAt(3, 1), 0.1, {Version(4), 3.2});
  CHECK(run.LastRates() == Rates{250, 400});
  second.OnStep(RowAt(4, 1), 0.1, {Version(7), 3.3});
  CHECK(run.LastRates() == Rates{250, 400});
  // Steps 3 to 8 were made in 3 s, and come in parts.
  for (uint64_t step = 5; step < 9; ++step) {
    second.OnStep(RowAt(step, 1), 0.1, {Version(9), 4.2});
    CHECK(run.LastRates() == Rates{200, 500});
  }
  second.OnStep(RowAt(9, 1), 0.1, {Version(10), 5.2});
  CHECK(run.LastRates() == Rates{100, 1000});
  second.speed().OnEnd(second.speed().past_seconds() + 4);
  second.Conclude(kStatusCompleted, Status());
  CHECK(second.summary().images_per_second == doctest::Approx(1000 / (5.2 + before)));
}

TEST_CASE("a version that is evaluated again is listed once") {
  RecordedRun run;
  RunRecorder recorder = run.Reopen(StateOfEarlierLife());
  recorder.OnEvaluation({Version(4), 100, 80, 30});
  CHECK(recorder.summary().evaluations.size() == 2);
}

TEST_CASE("what a program does not give is null, and its own sums are kept") {
  RecordedRun run;
  run.plan.job.model = run.plan.job.dataset = "external";
  run.plan.job.eval_sums = {"loss_sum", "mae"};
  RunRecorder recorder = run.Create();
  StepMetrics row = RowAt(0, NAN);
  row.accuracy = NAN;
  recorder.OnStep(row, 0.1, ReachAt(0, 1000));
  EvaluationSummary evaluation{Version(1), 100, 0, 20, 0, {{100, 100}}, {100}, {20, 5}};
  recorder.OnEvaluation(evaluation);
  evaluation.version = Version(2);
  evaluation.loss_sum = 30;
  recorder.OnEvaluation(evaluation);
  CHECK(BestFirst(run.plan.job, recorder.summary().evaluations).front() == Version(1));
  recorder.Conclude(kStatusCompleted, Status());
  const auto json = nlohmann::json::parse(*ReadTextFile(run.folder.SummaryPath()));
  for (const char* name : {"test_accuracy", "test_top5_accuracy", "best_test_accuracy", "best_step",
                           "best_weights_step", "train_loss"}) {
    CAPTURE(name);
    CHECK(json.at(name).is_null());
  }
  CHECK(json.at("test_loss") == 0.3);
  CHECK(json.at("test_sums") == "loss 0.2000, mae 0.0500");
  CHECK(json.at("classes").empty());
  CHECK(json.at("confusion_matrix").empty());
  const nlohmann::json& first = json.at("evaluations").at(0);
  CHECK(first.at("correct").is_null());
  CHECK(first.at("top5_correct").is_null());
  CHECK(first.at("loss_sum") == 20);
  const Result<Summary> read = run.folder.ReadSummary();
  REQUIRE(read.ok());
  CHECK(ToJson(*read) == *ReadTextFile(run.folder.SummaryPath()));
  const std::string rows = *ReadTextFile(run.folder.MetricsPath());
  CHECK(rows.find("\n1,0.1,,,0.1,") != std::string::npos);
  CHECK(rows.find(",,0.2,0.05\n2,") != std::string::npos);
  const std::string events = *ReadTextFile(run.folder.EventsPath());
  CHECK(events.find(R"("accuracy":null,"loss":0.2,"step":1,"text":"loss 0.2000, mae 0.0500")") !=
        std::string::npos);
}

TEST_CASE("results that are withdrawn are neither the last nor the best") {
  RecordedRun run;
  RunRecorder recorder = run.Create();
  recorder.OnEvaluation({Version(2), 100, 80, 20, 90});
  recorder.OnEvaluation({Version(4), 100, 95, 10, 99, {{40, 40}, {60, 55}}, {40, 0, 5, 55}});
  CHECK(recorder.summary().best_step == 4);
  DropEvaluations(Version(3), &recorder.summary());
  CHECK(recorder.summary().evaluations.size() == 1);
  CHECK(recorder.summary().best_step == 2);
  CHECK(recorder.summary().best_test_accuracy == 0.8);
  CHECK(recorder.summary().test_accuracy == 0.8);
  CHECK(recorder.summary().confusion_matrix.empty());
  DropEvaluations(Version(0), &recorder.summary());
  CHECK_FALSE(recorder.summary().best_step);
  CHECK_FALSE(recorder.summary().test_accuracy);
  CHECK_FALSE(recorder.summary().test_loss);
}

TEST_CASE("a run that ended before its summary was written names its weights") {
  RecordedRun run;
  run.Create();
  std::vector<float> flat(run.plan.layout.float_count());
  flat[1] = 3;
  REQUIRE(WriteWeights(run.folder.WeightsPath(), run.plan.layout, flat).ok());
  SchedulerState state;
  state.is_completed = true;
  RunRecorder recorder = run.Reopen(state);
  CHECK(recorder.Conclude(kStatusCompleted, Status()) == kExitCompleted);
  CHECK(run.folder.ReadSummary()->weights_hash == WeightsHash(run.plan.layout, flat));

  std::filesystem::remove(run.folder.WeightsPath());
  RunRecorder without = run.Reopen(state);
  CHECK(without.Conclude(kStatusCompleted, Status()) == kExitUsage);
  CHECK(run.folder.ReadSummary()->failure.find(run.folder.WeightsPath()) != std::string::npos);
}

TEST_CASE("rows that a full disk does not take are held, and cost the run nothing") {
  RecordedRun run;
  RunRecorder recorder = run.Create();
  recorder.OnStep(RowAt(0, 1), 0.1, ReachAt(0, 1000));
  {
    const FileSizeLimit limit(80);  // the heading and a piece of a row
    for (uint64_t step = 1; step < 4; ++step)
      recorder.OnStep(RowAt(step, 1), 0.1, ReachAt(step, 1000));
    recorder.OnEvent("snapshot-failed", "", "no space left on device");
    recorder.SyncRows();
  }
  recorder.OnStep(RowAt(4, 1), 0.1, ReachAt(4, 1000));
  CHECK(recorder.Conclude(kStatusCompleted, Status()) == kExitCompleted);
  CHECK(run.RowCount() == 5);
  CHECK(run.folder.ReadSummary()->missing_rows == 0);
  CHECK(CountEvents(run.folder, "snapshot-failed") == 1);
}

TEST_CASE("rows beyond what is held are counted as lost") {
  TempFolder temp;
  Result<RowFile> file = RowFile::Create(temp.path() + "/rows");
  REQUIRE(file.ok());
  PatientRows rows(*std::move(file));
  const std::string row(PatientRows::kHeldBytesMax / 4, 'x');
  {
    const FileSizeLimit limit(1);
    for (int i = 0; i < 5; ++i) CHECK_FALSE(rows.Append(row).ok());
  }
  CHECK(rows.held_count() == 4);
  CHECK(rows.lost_count() == 1);
  CHECK(rows.Flush().ok());
  CHECK(rows.held_count() == 0);
}

TEST_CASE("only a journal of the same job and without an end is gone on with") {
  TempFolder temp;
  Job job;
  job.run_dir = temp.path() + "/run";
  CHECK_FALSE(RunFolder::HoldsUnfinished(job));
  Result<RunFolder> folder = RunFolder::Create(job, false);
  REQUIRE(folder.ok());
  CHECK_FALSE(RunFolder::HoldsUnfinished(job));
  std::ofstream(folder->JournalPath()) << "x";
  CHECK(RunFolder::HoldsUnfinished(job));
  Job elsewhere = job;
  elsewhere.workers = 9;
  CHECK(RunFolder::HoldsUnfinished(elsewhere));
  Job other = job;
  other.seed = 9;
  CHECK_FALSE(RunFolder::HoldsUnfinished(other));
  Summary summary = MakeSummary(job);
  REQUIRE(folder->WriteSummary(summary).ok());
  CHECK(RunFolder::HoldsUnfinished(job));
  summary.status = kStatusCompleted;
  REQUIRE(folder->WriteSummary(summary).ok());
  CHECK_FALSE(RunFolder::HoldsUnfinished(job));
}

}  // namespace
}  // namespace pando
