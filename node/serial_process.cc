// `pando train --serial`: the job in this process, with the same run folder.
#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

#include "common/exit_codes.h"
#include "common/system.h"
#include "job/batch_check.h"
#include "job/device_choice.h"
#include "job/run_plan.h"
#include "node/gpu_monitor.h"
#include "node/log.h"
#include "node/process_timeline.h"
#include "node/processes.h"
#include "node/shutdown.h"
#include "run/run_recorder.h"
#include "run/serial_trainer.h"

namespace pando {
namespace {

double ImagesPerSecond(const SerialStep& step) {
  if (step.training_seconds <= 0) return 0;
  return static_cast<double>(step.sample_count) / step.training_seconds;
}

struct Outcome {
  Status status;
  bool was_interrupted = false;
};

Outcome Train(const Job& job, const DataSet& data, const Model& model, const OpenedDevice& device,
              RunRecorder& recorder) {
  ShutdownSignal shutdown;
  GpuMonitor gpu_monitor(device.gpu ? device.gpu->bus_id() : "");
  const std::unique_ptr<Timeline> timeline = OpenTimeline(
      job, RunFolder::Open(job.run_dir).TimelinePath(), "serial", NewIncarnation().value());
  const SerialCallbacks callbacks{
      .on_step =
          [&](const SerialStep& step) {
            recorder.OnDataStall(step.data_stall_seconds);
            recorder.OnExposedSync(step.exposed_sync_seconds);
            const GpuState& gpu = gpu_monitor.Read();
            recorder.OnGpuUse(gpu.memory_used_bytes, gpu.utilisation_percent);
            recorder.OnStep(step.metrics, step.scalars.lr, ImagesPerSecond(step));
          },
      .on_evaluation = [&](const EvaluationSummary& summary) { recorder.OnEvaluation(summary); },
      .timeline = timeline.get(),
      .interrupted = [&] { return shutdown.Take() != 0 || shutdown.first_signal() != 0; }};
  Result<SerialResult> result = TrainSerially(job, data, model, callbacks, {}, device.device());
  WarnOfLost(timeline.get());
  if (!result.ok()) return {result.status()};
  recorder.summary().images_per_second = ImagesPerSecond(result->last_step);
  if (result->best_parameters != nullptr) {
    Status s = recorder.OnBestWeights(result->best_version, result->best_parameters->span());
    if (!s.ok()) return {s};
  }
  return {recorder.OnWeights(result->version, result->parameters->span()), result->was_interrupted};
}

Result<int> TrainAlone(const Job& job) {
  SetFloatEnvironment();
  PANDO_ASSIGN_OR_RETURN(OpenedJob opened, OpenedJob::Open(job, LogWarning));
  PANDO_ASSIGN_OR_RETURN(OpenedDevice device, OpenDevice(job.device, job));
  PANDO_RETURN_IF_ERROR(CheckDeviceMemory(device.device(), opened.plan, opened.model));
  PANDO_ASSIGN_OR_RETURN(RunRecorder recorder,
                         RunRecorder::Create(opened.plan, RunFolder::Open(job.run_dir)));
  recorder.summary().workers = recorder.summary().servers = 0;
  if (job.optimizer.ema_decay > 0)
    spdlog::warn("--serial writes no averaged weights (optimizer.ema_decay): servers keep them");
  const Outcome outcome = Train(job, *opened.data, opened.model, device, recorder);
  return recorder.Conclude(outcome.was_interrupted ? kStatusInterrupted : kStatusCompleted,
                           outcome.status);
}

}  // namespace

int RunSerial(const Job& job) { return ExitWith(TrainAlone(job)); }

}  // namespace pando
