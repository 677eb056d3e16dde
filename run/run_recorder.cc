#include "run/run_recorder.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/exit_codes.h"
#include "run/safetensors.h"

namespace pando {
namespace {

constexpr const char* kRollbackEvent = "rollback";

// "98.50 %", and where five classes are not all of them "98.50 % (top 5: 99.90 %)".
std::string AccuracyText(const EvaluationSummary& evaluation) {
  std::string text = fmt::format("{:.2f} %", 100 * evaluation.accuracy());
  if (evaluation.classes.size() > 5)
    text += fmt::format(" (top 5: {:.2f} %)", 100 * evaluation.top5_accuracy());
  return text;
}

}  // namespace

RunRecorder::RunRecorder(const JobPlan& plan, RunFolder folder, MetricsFile metrics,
                         EventsFile events)
    : plan_(&plan),
      folder_(std::move(folder)),
      metrics_(std::move(metrics)),
      events_(std::move(events)),
      summary_(MakeSummary(plan.job)) {
  summary_.run_dir = folder_.path();
  summary_.parameter_count = plan.layout.parameter_count();
}

Result<RunRecorder> RunRecorder::Create(const JobPlan& plan, RunFolder folder) {
  PANDO_ASSIGN_OR_RETURN(MetricsFile metrics, MetricsFile::Create(folder));
  PANDO_ASSIGN_OR_RETURN(EventsFile events, EventsFile::Create(folder));
  return RunRecorder(plan, std::move(folder), std::move(metrics), std::move(events));
}

Result<RunRecorder> RunRecorder::Reopen(const JobPlan& plan, RunFolder folder,
                                        const SchedulerState& state, EventsFile::Gap gap) {
  std::optional<MetricsRow> last_row;
  PANDO_ASSIGN_OR_RETURN(MetricsFile metrics, MetricsFile::Reopen(folder, &last_row));
  PANDO_ASSIGN_OR_RETURN(EventsFile events, EventsFile::Reopen(folder, gap));
  RunRecorder recorder(plan, std::move(folder), std::move(metrics), std::move(events));
  recorder.TakeOver(state, last_row);
  return recorder;
}

// What an earlier life would have in its summary.
void RunRecorder::TakeOver(const SchedulerState& state, const std::optional<MetricsRow>& last_row) {
  if (last_row) {
    next_row_ = Step(last_row->step + 1);
    summary_.steps = waits_at_row_.steps = next_row_.value();
    first_step_ = next_row_;
    summary_.epochs = last_row->epoch;
    summary_.train_loss = last_row->loss;
    summary_.images_per_second = last_row->images_per_second;
    past_ = PastBefore(*last_row);
  }
  for (const EvaluationSummary& evaluation : state.evaluations)
    AddEvaluation(evaluation, &summary_);
  for (const SnapshotManifest& manifest : state.snapshots) OnSnapshot(manifest.snapshot);
  summary_.faults = state.faults;
  summary_.generation = state.view.generation;
  summary_.rollbacks = CountEvents(folder_, kRollbackEvent);
  if (!state.is_finished) return;
  EndWith(StopVersion(plan_->job, state.evaluations).value_or(plan_->steps.final_version()));
  Result<FloatBuffer> weights = ReadWeights(folder_.WeightsPath(), plan_->layout);
  if (weights.ok()) summary_.weights_hash = WeightsHash(plan_->layout, weights->span());
  weights_status_ = weights.status();
}

// Training went on after the last row, and without a scheduler, as long as the run's clock did.
RunRecorder::Past RunRecorder::PastBefore(const MetricsRow& last_row) const {
  Past past;
  for (Step step; step < next_row_; step = NextStep(step))
    past.sample_count += plan_->steps.SampleCount(step);
  if (last_row.images_per_second > 0)
    past.training_seconds = static_cast<double>(past.sample_count) / last_row.images_per_second;
  past.training_seconds += std::max(0.0, ElapsedSeconds() - last_row.elapsed_seconds);
  return past;
}

double RunRecorder::ElapsedSeconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start()).count();
}

// Said once when rows begin to be held, and once when all are written.
void RunRecorder::Heed(const Status& rows) {
  const bool has_held = metrics_.rows().held_count() + events_.rows().held_count() > 0;
  if (std::exchange(has_held_, has_held) == has_held) return;
  Note(has_held ? fmt::format("{}; rows are held until it can be written", rows.message())
                : "the rows that were held are written");
}

void RunRecorder::OnStep(const StepMetrics& metrics, double lr, double images_per_second) {
  const uint64_t done = metrics.step.value() + 1;
  const double epoch =
      static_cast<double>(done) / static_cast<double>(plan_->steps.steps_per_epoch());
  next_row_ = Step(done);
  sample_count_ += plan_->steps.SampleCount(metrics.step);
  summary_.steps = done;
  summary_.epochs = epoch;
  summary_.train_loss = metrics.loss;
  progress_.Update({.step = done,
                    .step_count = plan_->steps.step_count(),
                    .epoch = epoch,
                    .loss = metrics.loss,
                    .accuracy = metrics.accuracy,
                    .images_per_second = images_per_second,
                    .exposed_sync_ms = 1000 * summary_.exposed_sync_seconds /
                                       static_cast<double>(done - first_step_.value())},
                   std::chrono::steady_clock::now());
  if (done % plan_->job.log_every_steps != 0 && done != plan_->steps.step_count()) return;
  Heed(metrics_.Append(WithWaits({.step = metrics.step.value(),
                                  .epoch = epoch,
                                  .loss = metrics.loss,
                                  .accuracy = metrics.accuracy,
                                  .lr = lr,
                                  .images_per_second = images_per_second,
                                  .elapsed_seconds = ElapsedSeconds(),
                                  .gpu_memory_mb = gpu_memory_mb_,
                                  .gpu_percent = gpu_percent_})));
}

// Of a step since the last row, on average; also of those that were left out.
MetricsRow RunRecorder::WithWaits(MetricsRow row) {
  const Waits now{.steps = row.step + 1,
                  .data_seconds = summary_.data_stall_seconds,
                  .sync_seconds = summary_.exposed_sync_seconds};
  const Waits before = std::exchange(waits_at_row_, now);
  if (now.steps <= before.steps) return row;
  const double ms_per_step = 1000 / static_cast<double>(now.steps - before.steps);
  row.data_stall_ms = ms_per_step * (now.data_seconds - before.data_seconds);
  row.exposed_sync_ms = ms_per_step * (now.sync_seconds - before.sync_seconds);
  return row;
}

// Of the time that the computing threads had for training.
double RunRecorder::DataStallShare() const {
  if (summary_.images_per_second <= 0) return 0;
  const double seconds = static_cast<double>(sample_count_) / summary_.images_per_second;
  const uint64_t threads = uint64_t{std::max(1u, summary_.workers)} * summary_.threads;
  return seconds <= 0 ? 0 : summary_.data_stall_seconds / (seconds * static_cast<double>(threads));
}

void RunRecorder::OnEvaluation(const EvaluationSummary& evaluation) {
  if (evaluation.sample_count == 0) return;
  AddEvaluation(evaluation, &summary_);
  progress_.Note(fmt::format("step {}: test accuracy {}, test loss {:.4f}",
                             evaluation.version.value(), AccuracyText(evaluation),
                             *summary_.test_loss));
  Heed(events_.Append("evaluation", {{"step", evaluation.version.value()},
                                     {"accuracy", *summary_.test_accuracy},
                                     {"top5_accuracy", *summary_.test_top5_accuracy},
                                     {"loss", *summary_.test_loss}}));
}

void RunRecorder::OnFault(const FaultRecord& fault) {
  const auto known = std::ranges::find(summary_.faults, fault.id, &FaultRecord::id);
  if (known == summary_.faults.end()) {
    summary_.faults.push_back(fault);
  } else {
    *known = fault;
  }
  Heed(events_.Append("fault", nlohmann::json::parse(FaultJson(fault))));
  if (fault.recovered_ms < 0 || fault.detected_ms < 0) return;
  progress_.Note(fmt::format("{}: {} at step {}, noticed by {}, recovered after {:.0f} ms",
                             fault.target, fault.action, fault.step.value(), fault.detected_by,
                             fault.recovered_ms - fault.detected_ms));
}

void RunRecorder::OnSnapshot(const SnapshotRef& snapshot) {
  OnSnapshotDropped(snapshot);
  summary_.snapshots.push_back(snapshot);
  std::ranges::sort(summary_.snapshots);
}

void RunRecorder::OnSnapshotDropped(const SnapshotRef& snapshot) {
  std::erase(summary_.snapshots, snapshot);
}

void RunRecorder::OnEvent(const std::string& name, const std::string& node,
                          const std::string& text) {
  if (name == "mixed-kinds") summary_.is_reproducible = false;
  spdlog::debug("{}{}{}: {}", name, node.empty() ? "" : " ", node, text);
  if (name == kRollbackEvent) ++summary_.rollbacks;
  nlohmann::json details{{"text", text}};
  if (!node.empty()) details["node"] = node;
  Heed(events_.Append(name, details));
}

Status RunRecorder::OnWeights(Version version, std::span<const float> flat) {
  summary_.weights_hash = WeightsHash(plan_->layout, flat);
  EndWith(version);
  return WriteWeights(folder_.WeightsPath(), plan_->layout, flat);
}

// Ctrl-C is no early stop.
void RunRecorder::EndWith(Version version) {
  summary_.steps = version.value();
  summary_.stopped_early = version != plan_->steps.final_version() &&
                           StopVersion(plan_->job, summary_.evaluations) == version;
}

Status RunRecorder::OnBestWeights(Version version, std::span<const float> flat) {
  summary_.best_weights_step = version.value();
  return WriteWeights(folder_.BestWeightsPath(), plan_->layout, flat);
}

// Rows that a full disk never took.
uint64_t RunRecorder::MissingRows() {
  uint64_t count = 0;
  for (PatientRows* rows : {&metrics_.rows(), &events_.rows()}) {
    Heed(rows->Flush());
    count += rows->held_count() + rows->lost_count();
  }
  return count;
}

int RunRecorder::Conclude(const char* status, const Status& failure) {
  progress_.Finish();
  const Status& first = failure.ok() ? weights_status_ : failure;
  summary_.status = first.ok() ? status : kStatusFailed;
  summary_.failure = first.ok() ? "" : first.message();
  summary_.wall_seconds = ElapsedSeconds();
  if (!first.ok()) spdlog::error("{}", first.message());
  Heed(events_.Append(summary_.status, {{"text", summary_.failure}}));
  summary_.missing_rows = MissingRows();
  summary_.data_stall_share = DataStallShare();
  if (Status s = folder_.WriteSummary(summary_); !s.ok()) {
    spdlog::error("{}", s.message());
    return kExitFailed;
  }
  if (!first.ok()) return ExitCodeFor(first);
  return summary_.status == kStatusInterrupted ? kExitInterrupted : kExitCompleted;
}

}  // namespace pando
