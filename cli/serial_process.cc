#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>
#include <utility>

#include "cli/exit_codes.h"
#include "cli/processes.h"
#include "cli/progress.h"
#include "cli/run_folder.h"
#include "cli/run_plan.h"
#include "cli/safetensors.h"
#include "cli/serial_trainer.h"
#include "cli/shutdown.h"
#include "cli/summary.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

double ImagesPerSecond(const SerialStep& step) {
  if (step.training_seconds <= 0) return 0;
  return static_cast<double>(step.sample_count) / step.training_seconds;
}

// What a serial run tells people: progress line, metrics, events, summary and weights.
class SerialRun {
 public:
  explicit SerialRun(const SerialArgs& args)
      : job_(args.job), folder_(RunFolder::Open(args.run_dir)), summary_(SummaryOf(args.job)) {
    summary_.run_dir = args.run_dir;
    summary_.threads = job_.threads;
    summary_.workers = summary_.servers = 0;
  }
  int Run();

 private:
  Status Train();
  void OnStep(const SerialStep& step);
  void OnEvaluation(const EvaluationResult& result);
  Status Conclude(const SerialResult& result, const Model& model);
  void Keep(Status status);  // the first failure to write is the one to report
  double ElapsedSeconds() const {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }

  const Job& job_;
  const RunFolder folder_;
  const Clock::time_point start_ = Clock::now();
  ShutdownSignal shutdown_;
  ProgressLine progress_;
  Summary summary_;
  std::optional<MetricsFile> metrics_;
  std::optional<StepPlan> steps_;
  Status write_status_;
};

int SerialRun::Run() {
  const Status status = Train();
  progress_.Finish();
  summary_.wall_seconds = ElapsedSeconds();
  if (!status.ok()) {
    summary_.status = kStatusFailed;
    summary_.failure = status.message();
    spdlog::error("{}", status.message());
  }
  if (Status s = folder_.WriteSummary(summary_); !s.ok()) {
    spdlog::error("{}", s.message());
    return kExitFailed;
  }
  if (!status.ok()) return ExitCodeOf(status);
  return summary_.status == kStatusInterrupted ? kExitInterrupted : kExitCompleted;
}

Status SerialRun::Train() {
  Result<MetricsFile> metrics = MetricsFile::Create(folder_);
  if (!metrics.ok()) return metrics.status();
  metrics_ = std::move(*metrics);
  Result<std::unique_ptr<DataSet>> data = OpenDataSet(job_);
  if (!data.ok()) return data.status();
  Result<Model> model = Model::Create(job_, (*data)->shape(), (*data)->class_count());
  if (!model.ok()) return model.status();
  steps_ = MakeStepPlan(job_, (*data)->sample_count(Split::kTrain));
  const SerialCallbacks callbacks{
      .on_step = [this](const SerialStep& step) { OnStep(step); },
      .on_evaluation = [this](const EvaluationResult& result) { OnEvaluation(result); },
      .interrupted = [this] { return shutdown_.Take() != 0 || shutdown_.first_signal() != 0; }};
  Result<SerialResult> result = TrainSerially(job_, **data, *model, callbacks);
  if (!result.ok()) return result.status();
  return Conclude(*result, *model);
}

void SerialRun::OnStep(const SerialStep& step) {
  const uint64_t done = step.metrics.step.value() + 1;
  const double epoch = static_cast<double>(done) / static_cast<double>(steps_->steps_per_epoch());
  progress_.Update({.step = done,
                    .step_count = steps_->step_count(),
                    .epoch = epoch,
                    .loss = step.metrics.loss,
                    .accuracy = step.metrics.accuracy,
                    .images_per_second = ImagesPerSecond(step)},
                   Clock::now());
  if (done % job_.log_every_steps != 0 && done != steps_->step_count()) return;
  Keep(metrics_->Append({.step = step.metrics.step.value(),
                         .epoch = epoch,
                         .loss = step.metrics.loss,
                         .accuracy = step.metrics.accuracy,
                         .lr = step.scalars.lr,
                         .images_per_second = ImagesPerSecond(step),
                         .elapsed_seconds = ElapsedSeconds()}));
}

void SerialRun::OnEvaluation(const EvaluationResult& result) {
  if (result.sample_count == 0) return;
  const auto samples = static_cast<double>(result.sample_count);
  summary_.test_accuracy = static_cast<double>(result.correct_count) / samples;
  summary_.test_loss = result.loss_sum / samples;
  progress_.Note(fmt::format("step {}: test accuracy {:.2f} %, test loss {:.4f}",
                             result.version.value(), *summary_.test_accuracy * 100,
                             *summary_.test_loss));
}

Status SerialRun::Conclude(const SerialResult& result, const Model& model) {
  const std::span<const float> weights = result.parameters->span();
  summary_.status = result.was_interrupted ? kStatusInterrupted : kStatusCompleted;
  summary_.weights_hash = WeightsHash(model.layout(), weights);
  summary_.parameter_count = model.layout().parameter_count();
  if (result.version > Version(0)) summary_.train_loss = result.last_step.metrics.loss;
  summary_.images_per_second = ImagesPerSecond(result.last_step);
  summary_.steps = result.version.value();
  summary_.epochs =
      static_cast<double>(summary_.steps) / static_cast<double>(steps_->steps_per_epoch());
  Keep(WriteSafetensors(folder_.WeightsPath(), model.layout(), weights));
  return write_status_;
}

void SerialRun::Keep(Status status) {
  if (write_status_.ok()) write_status_ = std::move(status);
}

}  // namespace

int RunSerial(const SerialArgs& args) { return SerialRun(args).Run(); }

}  // namespace pando
