#include "cli/run_recorder.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "cli/exit_codes.h"
#include "common/safetensors.h"

namespace pando {

RunRecorder::RunRecorder(const JobPlan& plan, RunFolder folder, MetricsFile metrics,
                         EventsFile events)
    : plan_(&plan),
      folder_(std::move(folder)),
      metrics_(std::move(metrics)),
      events_(std::move(events)),
      summary_(SummaryOf(plan.job)) {
  summary_.run_dir = folder_.path();
  summary_.parameter_count = plan.layout.parameter_count();
}

Result<RunRecorder> RunRecorder::Create(const JobPlan& plan, RunFolder folder) {
  Result<MetricsFile> metrics = MetricsFile::Create(folder);
  if (!metrics.ok()) return metrics.status();
  Result<EventsFile> events = EventsFile::Create(folder);
  if (!events.ok()) return events.status();
  return RunRecorder(plan, std::move(folder), std::move(*metrics), std::move(*events));
}

double RunRecorder::ElapsedSeconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void RunRecorder::Keep(Status status) {
  if (write_status_.ok()) write_status_ = std::move(status);
}

void RunRecorder::OnStep(const StepMetrics& metrics, double lr, double images_per_second) {
  const uint64_t done = metrics.step.value() + 1;
  const double epoch =
      static_cast<double>(done) / static_cast<double>(plan_->steps.steps_per_epoch());
  summary_.steps = done;
  summary_.epochs = epoch;
  summary_.train_loss = metrics.loss;
  progress_.Update({.step = done,
                    .step_count = plan_->steps.step_count(),
                    .epoch = epoch,
                    .loss = metrics.loss,
                    .accuracy = metrics.accuracy,
                    .images_per_second = images_per_second},
                   std::chrono::steady_clock::now());
  if (done % plan_->job.log_every_steps != 0 && done != plan_->steps.step_count()) return;
  Keep(metrics_.Append({.step = metrics.step.value(),
                        .epoch = epoch,
                        .loss = metrics.loss,
                        .accuracy = metrics.accuracy,
                        .lr = lr,
                        .images_per_second = images_per_second,
                        .elapsed_seconds = ElapsedSeconds()}));
}

void RunRecorder::OnEvaluation(const RecordedEvaluation& evaluation) {
  if (evaluation.sample_count == 0) return;
  const auto samples = static_cast<double>(evaluation.sample_count);
  summary_.test_accuracy = static_cast<double>(evaluation.correct_count) / samples;
  summary_.test_loss = evaluation.loss_sum / samples;
  progress_.Note(fmt::format("step {}: test accuracy {:.2f} %, test loss {:.4f}",
                             evaluation.version.value(), *summary_.test_accuracy * 100,
                             *summary_.test_loss));
  Keep(events_.Append("evaluation", {{"step", evaluation.version.value()},
                                     {"accuracy", *summary_.test_accuracy},
                                     {"loss", *summary_.test_loss}}));
}

void RunRecorder::OnEvent(const std::string& name, const std::string& node,
                          const std::string& text) {
  spdlog::debug("{}{}{}: {}", name, node.empty() ? "" : " ", node, text);
  nlohmann::json details{{"text", text}};
  if (!node.empty()) details["node"] = node;
  Keep(events_.Append(name, details));
}

void RunRecorder::OnWeights(Version version, std::span<const float> flat) {
  summary_.weights_hash = WeightsHash(plan_->layout, flat);
  summary_.steps = version.value();
  Keep(WriteWeights(folder_.WeightsPath(), plan_->layout, flat));
}

int RunRecorder::Conclude(const char* status, const Status& failure) {
  progress_.Finish();
  const Status& first = failure.ok() ? write_status_ : failure;
  summary_.status = first.ok() ? status : kStatusFailed;
  summary_.failure = first.ok() ? "" : first.message();
  summary_.wall_seconds = ElapsedSeconds();
  if (!first.ok()) spdlog::error("{}", first.message());
  Keep(events_.Append(summary_.status, {{"text", summary_.failure}}));
  if (Status s = folder_.WriteSummary(summary_); !s.ok()) {
    spdlog::error("{}", s.message());
    return kExitFailed;
  }
  if (!first.ok()) return ExitCodeOf(first);
  return summary_.status == kStatusInterrupted ? kExitInterrupted : kExitCompleted;
}

}  // namespace pando
