// `pando train --serial`: the job in this process, with the same run folder.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "common/hash.h"
#include "common/system.h"
#include "files/folder_files.h"
#include "job/batch_check.h"
#include "job/device_choice.h"
#include "job/job_file.h"
#include "job/run_plan.h"
#include "node/gpu_monitor.h"
#include "node/log.h"
#include "node/process_timeline.h"
#include "node/processes.h"
#include "node/shutdown_signal.h"
#include "run/initial_weights.h"
#include "run/run_recorder.h"
#include "run/serial_trainer.h"
#include "run/snapshot_file.h"
#include "run/snapshot_folder.h"
#include "run/sqlite_journal.h"

namespace pando {
namespace {

// Keeps what `pando resume` continues from: a snapshot of the last version, and a journal that
// names it, as a scheduler would leave them.
Status KeepForResume(const SerialResult& result, const JobPlan& plan, RunRecorder& recorder) {
  const RunFolder folder = RunFolder::Open(plan.job.run_dir);
  const Incarnation process = NewIncarnation();
  const SnapshotRef snapshot{0, result.version};
  SchedulerState state{.job = MakeJobId(plan.job, process.value()),
                       .term = 1,
                       .evaluations = recorder.summary().evaluations};
  SnapshotManifest& manifest = state.snapshots.emplace_back(SnapshotManifest{snapshot, {}});
  const std::string file = SnapshotFileName(snapshot, process, 0);
  std::vector<StoreRequest> records;
  const auto copy = [](std::span<const float> values) {
    auto copied = std::make_shared<FloatBuffer>(values.size());
    std::ranges::copy(values, copied->data());
    return copied;
  };
  for (uint32_t s = 0; s < plan.shards.shard_count(); ++s) {
    const ShardRange& range = plan.shards.range(ShardId(s));
    StoreRequest& record = records.emplace_back(StoreRequest{
        .snapshot = snapshot,
        .shard = ShardId(s),
        .parameters = copy(result.parameters->span().subspan(range.first, range.size())),
        .state = copy(result.states[s].span())});
    record.hash = RecordHash(snapshot.version, record.parameters->span(), record.state->span());
    manifest.shards.push_back({record.hash, file});
  }
  FolderFiles files(folder.SnapshotsPath());
  PANDO_RETURN_IF_ERROR(WriteSnapshotFile(files, file, state.job, snapshot, records));
  PANDO_RETURN_IF_ERROR(SnapshotFolder(folder.SnapshotsPath(), {}).OnComplete(manifest));
  PANDO_ASSIGN_OR_RETURN(SqliteJournal journal,
                         SqliteJournal::Open(folder.JournalPath(), process.value()));
  PANDO_RETURN_IF_ERROR(journal.ReadState().status());
  PANDO_RETURN_IF_ERROR(journal.Commit(state));
  recorder.OnSnapshot(snapshot);
  return Status();
}

struct Outcome {
  Status status;
  bool was_interrupted = false;
};

Outcome Train(const OpenedJob& opened, const OpenedDevice& device, RunRecorder& recorder) {
  const Job& job = opened.plan.job;
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
            recorder.OnStep(step.metrics, step.scalars.lr,
                            {VersionMadeBy(step.metrics.step), step.training_seconds});
          },
      .on_evaluation = [&](const EvaluationSummary& summary) { recorder.OnEvaluation(summary); },
      .timeline = timeline.get(),
      .interrupted = [&] { return shutdown.Take() != 0 || shutdown.first_signal() != 0; }};
  Result<std::shared_ptr<const FloatBuffer>> initial =
      ReadInitialWeights(job.run_dir, job, opened.plan.layout);
  if (!initial.ok()) return {initial.status()};
  Result<SerialResult> result = TrainSerially(job, *opened.data, opened.model, callbacks,
                                              {.initial = *initial}, device.device());
  WarnOfLost(timeline.get());
  if (!result.ok()) return {result.status()};
  recorder.speed().OnEnd(result->last_step.training_seconds);
  recorder.summary().evaluation_seconds = result->last_step.evaluation_seconds;
  if (result->best_parameters != nullptr) {
    Status s = recorder.OnBestWeights(result->best_version, result->best_parameters->span());
    if (!s.ok()) return {s};
  }
  if (!result->was_interrupted)
    return {recorder.OnWeights(result->version, result->parameters->span())};
  // Servers keep averaged weights in their state, which a single process does not have.
  if (job.optimizer.ema_decay > 0) return {Status(), true};
  return {KeepForResume(*result, opened.plan, recorder), true};
}

// Lists engines of convolutions only with -v, since they would fill the terminal.
void LogSerialEngine(const EngineNote& note) {
  spdlog::log(note.is_fallback ? spdlog::level::warn : spdlog::level::debug, "{}", note.text);
}

Result<int> TrainAlone(const Job& job) {
  SetFloatEnvironment();
  PANDO_ASSIGN_OR_RETURN(OpenedJob opened, OpenedJob::Open(job, LogWarning));
  PANDO_ASSIGN_OR_RETURN(const OpenedDevice device, OpenDevice(job.device, job, LogSerialEngine));
  PANDO_RETURN_IF_ERROR(CheckDeviceMemory(device.device(), opened.plan, opened.model));
  const RunFolder folder = RunFolder::Open(job.run_dir);
  PANDO_RETURN_IF_ERROR(folder.KeepIdentity(job, opened.plan.data));
  PANDO_ASSIGN_OR_RETURN(RunRecorder recorder, RunRecorder::Create(opened.plan, folder));
  recorder.summary().workers = recorder.summary().servers = 0;
  if (job.optimizer.ema_decay > 0)
    spdlog::warn("--serial writes no averaged weights (optimizer.ema_decay): servers keep them");
  const Outcome outcome = Train(opened, device, recorder);
  return recorder.Conclude(outcome.was_interrupted ? kStatusInterrupted : kStatusCompleted,
                           outcome.status);
}

}  // namespace

int RunSerial(const Job& job) { return ExitWith(TrainAlone(job)); }

}  // namespace pando
